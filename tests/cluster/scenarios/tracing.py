"""Traces of tf.functions: a coordinator in the process of a task that is no part of its cluster."""

import pathlib
import tempfile

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

    decorated = tfsched.function(forward.python_function, options=tfsched.Options(strict=True))
    task.state.update(forward=forward, train=train, decorated=decorated, runs=runs)


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


def run(task, function, options, count):
    """Runs a function scheduled by the coordinator, with the options."""
    import tfsched

    tfsched.enable(tfsched.Options(**options))
    try:
        for _ in range(count):
            task.state["coordinator"].schedule(task.state[function], args=(tf.ones([8, WIDTH]),))
        task.state["coordinator"].join()
    finally:
        tfsched.disable()


def runs(task):
    """How often "train" has run."""
    return int(task.state["runs"].numpy())


def start_profile(task, directory):
    """Begins a profile of this process, as TensorBoard's callback does."""
    tf.profiler.experimental.start(directory)


def stop_profile(task, directory):
    """Ends it: of each line (name, events), each event being (name, start_us, duration_us, {statistic: value})."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    tf.profiler.experimental.stop()
    (path,) = pathlib.Path(directory).rglob("*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(path.read_bytes())
    (plane,) = [plane for plane in space.planes if plane.name == "/host:CPU"]

    def shown(line, event):
        stats = {plane.stat_metadata[stat.metadata_id].name: stat.int64_value for stat in event.stats}
        start_us = (line.timestamp_ns + event.offset_ps / 1000) / 1000
        return plane.event_metadata[event.metadata_id].name, start_us, event.duration_ps / 1e6, stats

    return [(line.name, [shown(line, event) for event in line.events]) for line in plane.lines]


def other_profiler(task, running):
    """Starts or stops TensorFlow's profiler in this process without writing anything."""
    if running:
        tf.profiler.experimental.start(tempfile.mkdtemp())
    else:
        tf.profiler.experimental.stop(save=False)
