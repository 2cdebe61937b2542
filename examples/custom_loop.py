"""TensorFlow 2: a custom training loop under ParameterServerStrategy, with scheduled transfers.

python examples/custom_loop.py            a parameter server, two workers and the coordinator on this machine
TF_CONFIG=... python examples/custom_loop.py    one task of a real cluster; the chief coordinates
"""

import tensorflow as tf
from local_cluster import join_or_start, leave

import tfsched


def main():
    cluster, index = join_or_start(workers=2)
    resolver = tfsched.cluster_resolver(cluster, "chief", index)  # instead of SimpleClusterResolver
    tfsched.enable(tfsched.Options(policy="bytescheduler"))

    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = [tf.Variable(tf.random.normal([64, 64], stddev=0.15)) for _ in range(4)]
        out = tf.Variable(tf.random.normal([64, 1], stddev=0.15))
        steps_done = tf.Variable(0, dtype=tf.int64)

    @tf.function
    def step():
        def replica():
            batch = tf.random.normal([32, 64])
            with tf.GradientTape() as tape:
                hidden = batch
                for matrix in weights:
                    hidden = tf.nn.relu(hidden @ matrix)
                loss = tf.reduce_mean(tf.square(hidden @ out - batch[:, :1]))
            for variable, gradient in zip([*weights, out], tape.gradient(loss, [*weights, out]), strict=True):
                variable.assign_sub(0.03 * gradient)
            steps_done.assign_add(1)
            return loss

        return strategy.run(replica)

    for epoch in range(5):
        losses = [coordinator.schedule(step) for _ in range(40)]
        coordinator.join()  # every update of the epoch is applied
        print(f"epoch {epoch} loss {sum(loss.fetch() for loss in losses) / len(losses):.4f}")
    ordered = tfsched.stats("/job:ps/task:0")["tasks"]
    print(f"{steps_done.numpy()} steps; {ordered} transfers of the parameter server were ordered")


if __name__ == "__main__":
    main()
    leave()
