"""As TensorFlow's tutorial "Custom training loop with Keras and MultiWorkerMirroredStrategy", without Keras."""

import json
import os

import tensorflow as tf

tf_config = json.loads(os.environ["TF_CONFIG"])
num_workers = len(tf_config["cluster"]["worker"])
global_batch_size = 8 * num_workers
num_steps_per_epoch = 6

strategy = tf.distribute.MultiWorkerMirroredStrategy()

with strategy.scope():
    weights = [tf.Variable(tf.random.stateless_normal([128, 128], [layer, 1]) * 0.09) for layer in range(3)]
    out = tf.Variable(tf.zeros([128, 1]))

    def dataset_fn(input_context):
        batch_size = input_context.get_per_replica_batch_size(global_batch_size)
        data = tf.data.Dataset.from_tensor_slices(tf.random.stateless_normal([64, 128], [5, 5]))
        return data.shard(input_context.num_input_pipelines, input_context.input_pipeline_id).repeat().batch(batch_size)

    multi_worker_dataset = strategy.distribute_datasets_from_function(dataset_fn)


@tf.function
def train_step(iterator):
    def step_fn(x):
        with tf.GradientTape() as tape:
            hidden = x
            for matrix in weights:
                hidden = tf.nn.relu(hidden @ matrix)
            loss = tf.reduce_sum(tf.square(hidden @ out - x[:, :1])) / global_batch_size
        gradients = tape.gradient(loss, [*weights, out])
        gradients = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        for variable, gradient in zip([*weights, out], gradients, strict=True):
            variable.assign_sub(0.05 * gradient)
        return loss

    per_replica_losses = strategy.run(step_fn, args=(next(iterator),))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


for epoch in range(2):
    iterator = iter(multi_worker_dataset)
    losses = [float(train_step(iterator)) for _ in range(num_steps_per_epoch)]
    print("epoch", epoch, "loss", " ".join(f"{loss:.6f}" for loss in losses))
