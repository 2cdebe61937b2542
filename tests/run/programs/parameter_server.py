"""As TensorFlow's tutorial "Parameter server training with ParameterServerStrategy": a coordinator and its cluster."""

import sys

import tensorflow as tf

cluster_resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()

if cluster_resolver.task_type in ("worker", "ps"):
    # Start a TensorFlow server and wait.
    server = tf.distribute.Server(
        cluster_resolver.cluster_spec(),
        job_name=cluster_resolver.task_type,
        task_index=cluster_resolver.task_id,
        protocol=cluster_resolver.rpc_layer or "grpc",
        start=True,
    )
    server.join()
    sys.exit(0)

# Run the coordinator.
strategy = tf.distribute.ParameterServerStrategy(cluster_resolver)

with strategy.scope():
    weights = [tf.Variable(tf.random.stateless_normal([64, 64], [layer, 1]) * 0.12) for layer in range(3)]
    out = tf.Variable(tf.zeros([64, 1]))


@tf.function
def step_fn(iterator):
    def replica_fn(x):
        with tf.GradientTape() as tape:
            hidden = x
            for matrix in weights:
                hidden = tf.nn.relu(hidden @ matrix)
            loss = tf.reduce_mean(tf.square(hidden @ out - x[:, :1]))
        for variable, gradient in zip([*weights, out], tape.gradient(loss, [*weights, out]), strict=True):
            variable.assign_sub(0.05 * gradient)
        return loss

    losses = strategy.run(replica_fn, args=(next(iterator),))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


@tf.function
def per_worker_dataset_fn():
    def dataset_fn(input_context):
        return tf.data.Dataset.from_tensor_slices(tf.random.stateless_normal([64, 64], [5, 5])).repeat().batch(16)

    return strategy.distribute_datasets_from_function(dataset_fn)


coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
per_worker_iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset_fn))

for epoch in range(2):
    losses = [coordinator.schedule(step_fn, args=(per_worker_iterator,)) for _ in range(8)]
    coordinator.join()
    print(f"Finished epoch {epoch}, loss {sum(float(loss.fetch()) for loss in losses) / len(losses):.4f}.")
