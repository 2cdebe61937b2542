"""TensorFlow 2: a custom training loop under MultiWorkerMirroredStrategy, with scheduled all-reduces.

python examples/mirrored.py            two workers on this machine
TF_CONFIG=... python examples/mirrored.py    one worker of a real cluster; all run this program
"""

import tensorflow as tf
from local_cluster import leave, workers_or_start

import tfsched


def main(cluster, index):
    resolver = tfsched.cluster_resolver(cluster, "worker", index)  # instead of TFConfigClusterResolver
    tfsched.enable()

    strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
    with strategy.scope():
        weights = [tf.Variable(tf.random.stateless_normal([256, 256], [layer, 1]) * 0.06) for layer in range(4)]
        out = tf.Variable(tf.random.stateless_normal([256, 1], [9, 1]) * 0.06)

    @tf.function
    def step():
        def replica():
            batch = tf.random.normal([32, 256])
            with tf.GradientTape() as tape:
                hidden = batch
                for matrix in weights:
                    hidden = tf.nn.relu(hidden @ matrix)
                loss = tf.reduce_mean(tf.square(hidden @ out - batch[:, :1]))
            gradients = tape.gradient(loss, [*weights, out])
            gradients = tf.distribute.get_replica_context().all_reduce("mean", gradients)
            for variable, gradient in zip([*weights, out], gradients, strict=True):
                variable.assign_sub(0.03 * gradient)
            return loss

        return strategy.run(replica)

    for epoch in range(5):
        losses = [float(step()) for _ in range(40)]
        if index == 0:
            print(f"epoch {epoch} loss {sum(losses) / len(losses):.4f}")
    stats = tfsched.stats()
    if index == 0:
        print(f"{stats['all_reduces']} gradients were exchanged; {stats['tasks']} transfers of this worker were ordered")


if __name__ == "__main__":
    main(*workers_or_start(main))
    leave()
