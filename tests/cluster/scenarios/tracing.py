"""Traces of tf.functions: a coordinator in the process of a task that is no part of its cluster."""

import contextlib

import tensorflow as tf

WIDTH, LAYERS = 64, 6


def connect(task, port):
    """Makes this process the coordinator of ps 0 and worker 0; to be called once."""
    import tfsched

    cluster = {job: hosts[:1] for job, hosts in task.spec["cluster"].items()}
    cluster["chief"] = [f"127.0.0.1:{port}"]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), task_type="chief", task_id=0, rpc_layer=tfsched.PROTOCOL
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    task.state["coordinator"] = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = [tf.Variable(tf.random.stateless_normal([WIDTH, WIDTH], [i, 7], stddev=0.1)) for i in range(LAYERS)]

    @tf.function
    def forward(x):
        for i, weight in enumerate(weights):
            x = tf.matmul(x, weight, name=f"layer{i}")
        return tf.reduce_sum(x, name="loss")

    @tf.function
    def train(x):
        with tf.GradientTape() as tape:
            loss = forward(x)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return loss

    task.state.update(forward=forward, train=train, weights=weights)


def trace(task, function="forward", steps=3, plan=""):
    """Traces a function through the coordinator; the trace as JSON."""
    import tfsched

    run = tfsched.trace_function(
        task.state[function], (tf.ones([8, WIDTH]),), steps=steps, coordinator=task.state["coordinator"]
    )
    return run.to_json()
