"""Traces of tf.functions: a coordinator in the process of a task that is no part of its cluster."""

import tensorflow as tf

WIDTH, LAYERS = 64, 6


def connect(task, port):
    """Makes this process the coordinator of all but its own task; to be called once."""
    import tfsched

    cluster = {**task.spec["cluster"], "chief": [f"127.0.0.1:{port}"]}
    cluster[task.spec["job"]] = cluster[task.spec["job"]][: task.spec["index"]]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), task_type="chief", task_id=0, rpc_layer=tfsched.PROTOCOL
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    task.state["coordinator"] = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = [tf.Variable(tf.random.stateless_normal([WIDTH, WIDTH], [i, 7], stddev=0.1)) for i in range(LAYERS)]
        runs = tf.Variable(0, dtype=tf.int64)

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
        runs.assign_add(1)
        return loss

    task.state.update(forward=forward, train=train, runs=runs)


def trace(task, function="forward", steps=3, options=None, direct=False, worker=0):
    """Traces a function, scheduled or called on the worker's device, with the options if any; the trace as JSON."""
    import tfsched

    arguments = (task.state[function], [tf.ones([8, WIDTH])])
    if options is not None:
        tfsched.enable(tfsched.Options(**options))
    try:
        if direct:
            with tf.device(f"/job:worker/replica:0/task:{worker}"):
                made = tfsched.trace_function(*arguments, steps=steps)
        else:
            made = tfsched.trace_function(*arguments, steps=steps, coordinator=task.state["coordinator"], worker=worker)
    finally:
        tfsched.disable()
    return made.to_json()


def runs(task):
    """How often "train" has run."""
    return int(task.state["runs"].numpy())


def profile(task, directory):
    """Takes a profile of this process, as TensorBoard's are, while "train" runs on worker 0."""
    import tfsched

    tfsched.enable()
    try:
        task.state["coordinator"].schedule(task.state["train"], args=(tf.ones([8, WIDTH]),))
        task.state["coordinator"].join()
    finally:
        tfsched.disable()
