"""Training in tf.compat.v1 graphs that all-reduce: each worker has a session on its own server."""

import tensorflow as tf
from tensorflow.python.ops import collective_ops

v1 = tf.compat.v1
_LEADER = "/job:worker/replica:0/task:0"
_WIDTHS = (40, 700, 40, 40)
_BATCH, _GROUP = 4, 5


def _config(task, options):
    """A session's configuration, as the strategy makes it; with tfsched's pass if ``options`` (a dict) is given."""
    base = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=4)
    base.experimental.collective_group_leader = _LEADER
    base.device_filters.append(f"/job:worker/task:{task.spec['index']}")
    if options is None:
        return base
    import tfsched

    return tfsched.session_config(tfsched.Options(**options), base=base)


def _target(task):
    """The master of this process's server, which is made once."""
    if "collectives" not in task.state:
        task.state["collectives"] = tf.distribute.Server(
            {"worker": task.spec["cluster"]["worker"]},
            job_name="worker",
            task_index=task.spec["index"],
            protocol=task.spec["protocol"],
            config=_config(task, None),
        )
    return task.state["collectives"].target


def _reduced(gradients, workers, op):
    """Their sums: of one pack by CollectiveReduceV2, or one by one by CollectiveReduce."""
    if op == "CollectiveReduce":
        return [
            collective_ops.all_reduce(gradient, workers, _GROUP, 20 + number, "Add", "Id")
            for number, gradient in enumerate(gradients)
        ]
    pack = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], 0)
    reduced = collective_ops.all_reduce_v2(pack, workers, _GROUP, 10)
    parts = tf.split(reduced, [gradient.shape.num_elements() for gradient in gradients])
    return [tf.reshape(part, gradient.shape) for part, gradient in zip(parts, gradients, strict=True)]


def _loss(variables, batch):
    for weight in variables:
        batch = tf.tanh(batch @ weight)
    return tf.reduce_mean(tf.square(batch - 0.5))


def _initial(layer):
    shape = [_WIDTHS[layer], _WIDTHS[layer + 1]]
    return tf.random.stateless_normal(shape, [layer, 1]) * shape[0] ** -0.5


def _step(task, op):
    """The step as fetches: its loss, and the update of all variables; and the variables."""
    workers, number = len(task.spec["cluster"]["worker"]), v1.placeholder(tf.int32, [], "number")
    batch = tf.random.stateless_normal([_BATCH, _WIDTHS[0]], [number, task.spec["index"]])
    with tf.device(f"/job:worker/task:{task.spec['index']}/device:CPU:0"):
        variables = [
            v1.get_variable(f"w{layer}", initializer=_initial(layer), use_resource=True) for layer in range(len(_WIDTHS) - 1)
        ]
        loss = _loss(variables, batch)
        sums = _reduced(v1.gradients(loss, variables), workers, op)
        updates = [variable.assign_sub(0.1 * one) for variable, one in zip(variables, sums, strict=True)]
    return number, {"loss": loss, "update": tf.group(*updates)}, variables


def _step_of_strategy(task):
    """The same under MultiWorkerMirroredStrategy, as it builds graphs."""
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": task.spec["cluster"]["worker"]}),
        task_type="worker",
        task_id=task.spec["index"],
        rpc_layer=task.spec["protocol"],
    )
    strategy = v1.distribute.experimental.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    number = v1.placeholder(tf.int32, [], "number")
    with strategy.scope():
        variables = [tf.Variable(_initial(layer)) for layer in range(len(_WIDTHS) - 1)]

        def replica():
            batch = tf.random.stateless_normal([_BATCH, _WIDTHS[0]], [number, task.spec["index"]])
            with tf.GradientTape() as tape:
                loss = _loss(variables, batch)
            sums = tf.distribute.get_replica_context().all_reduce("sum", tape.gradient(loss, variables))
            updates = [variable.assign_sub(0.1 * one) for variable, one in zip(variables, sums, strict=True)]
            return loss, tf.group(*updates)

        loss, update = strategy.run(replica)
    return number, {"loss": loss, "update": update}, [strategy.experimental_local_results(one)[0] for one in variables]


def train(task, options=None, op="CollectiveReduceV2", steps=6, first=0):
    """Losses of the steps and all variables afterwards, as hexadecimal text; a new session each time."""
    target = _target(task)
    with tf.Graph().as_default() as graph:
        number, fetches, variables = _step_of_strategy(task) if op == "strategy" else _step(task, op)
        initializer = v1.global_variables_initializer()
    with v1.Session(target, graph=graph, config=_config(task, options)) as session:
        session.run(initializer)
        losses = [session.run(fetches, {number: step})["loss"] for step in range(first, first + steps)]
        values = session.run(variables)
    return {"losses": [loss.tobytes().hex() for loss in losses], "variables": [value.tobytes().hex() for value in values]}
