"""Graphs of every kind that users build. Each function trains or evaluates one and returns numbers, bit by bit."""

import os

import numpy as np
import tensorflow as tf

from . import common
from .common import v1


def _hex(value):
    """A number, text or array as text that compares bit by bit."""
    value = np.asarray(value)
    return value.astype(bytes).tolist().__repr__() if value.dtype == object else value.tobytes().hex()


def _run(task, options, graph, init, runs):
    """Runs (fetches, feeds) pairs in one session; returns the fetched values of each run."""
    config = common.session_config(task, options)
    # Stock TensorFlow needs it for functions that are given variables of another task.
    config.experimental.share_cluster_devices_in_session = True
    with v1.Session(task.target, graph=graph, config=config) as session:
        session.run(init)
        return [[_hex(value) for value in session.run(fetches, feeds)] for fetches, feeds in runs]


def in_graph(task, options):
    """One client, a tower on each worker, the mean of their gradients applied to variables on all parameter servers."""
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    with tf.Graph().as_default() as graph:
        towers = []
        for index in range(len(task.spec["cluster"]["worker"])):
            device = common.on_ps(task, f"/job:worker/task:{index}")
            with v1.device(device), v1.variable_scope("model", reuse=index > 0):
                hidden = tf.random.stateless_normal([4, 64], seed=[index, 1])
                for layer in range(6):
                    hidden = tf.tanh(hidden @ common.variable(f"w{layer}", [64, 64], layer))
                towers.append((tf.reduce_mean(hidden), optimizer.compute_gradients(tf.reduce_mean(tf.square(hidden - 1)))))
        means = []
        for pairs in zip(*(gradients for _, gradients in towers), strict=True):
            with v1.colocate_with(pairs[0][1].handle):
                means.append((sum(gradient for gradient, _ in pairs) / len(pairs), pairs[0][1]))
        with tf.control_dependencies([optimizer.apply_gradients(means)]):
            done = tf.constant(0)
        fetches = [done, *(mean for mean, _ in towers)]
        return _run(task, options, graph, v1.global_variables_initializer(), [(fetches, {})] * 6)


def functions(task, options):
    """Variables of a parameter server read inside of tf.functions, nested, and passed to one that is never inlined."""
    with tf.Graph().as_default() as graph, v1.device(common.on_ps(task)):
        weights = [common.variable(f"w{layer}", [64, 64], layer) for layer in range(5)]

        @tf.function
        def inner(value, weight):
            return tf.tanh(value @ weight)

        @tf.function
        def outer(value):
            for weight in weights[:3]:
                value = inner(value, weight)
            return value

        @tf.function(experimental_attributes={"_noinline": True})
        def apart(value, weight):
            return tf.tanh(value @ weight)

        with tf.device(common.here(task)):
            first = outer(tf.ones([4, 64]))
        second = apart(first, weights[3].read_value())
        loss = tf.reduce_mean(tf.square(apart(second, weights[4].read_value()) - 1))
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        with tf.control_dependencies([train]):
            trained = tf.identity(loss)
        return _run(task, options, graph, v1.global_variables_initializer(), [([trained], {})] * 5)


def branches(task, options, version):
    """Variables read inside of tf.cond, the branch alternating; a dead tensor crosses tasks in every run."""
    with common.control_flow(version), tf.Graph().as_default() as graph, v1.device(common.on_ps(task)):
        weights = [common.variable(f"w{layer}", [64, 64], layer) for layer in range(6)]
        taken = v1.placeholder(tf.bool, [])
        value = tf.tanh(tf.ones([4, 64]) @ weights[0])
        value = tf.cond(taken, lambda: tf.tanh(value @ weights[1]), lambda: tf.sin(value @ weights[2]))
        # A tensor that exists in any case and is used in one branch only, and a branch within a branch.
        outside = weights[3] * 2.0
        value = tf.cond(
            taken,
            lambda: value @ outside,
            lambda: tf.cond(tf.reduce_sum(value) > 0, lambda: value @ weights[4], lambda: value + 1.0),
        )
        loss = tf.reduce_mean(tf.square(tf.tanh(value @ weights[5]) - 1))
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        with tf.control_dependencies([train]):
            trained = tf.identity(loss)
        runs = [([trained], {taken: number % 2 == 0}) for number in range(8)]
        runs += [([loss], {taken: number < 2}) for number in range(4)]
        return _run(task, options, graph, v1.global_variables_initializer(), runs)


def loops(task, options, version):
    """Variables read inside and outside of tf.while_loop, a different number of rounds in every run."""
    with common.control_flow(version), tf.Graph().as_default() as graph, v1.device(common.on_ps(task)):
        weights = [common.variable(f"w{layer}", [64, 64], layer) for layer in range(4)]
        rounds = v1.placeholder(tf.int32, [])
        start = tf.tanh(tf.ones([4, 64]) @ weights[0])

        def body(number, value):
            return number + 1, tf.tanh(value @ weights[1].read_value() + tf.reduce_mean(weights[2]))

        _, value = tf.while_loop(lambda number, _: number < rounds, body, [0, start])
        loss = tf.reduce_mean(tf.square(tf.tanh(value @ weights[3]) - 1))
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        with tf.control_dependencies([train]):
            trained = tf.identity(loss)
        runs = [([trained], {rounds: number}) for number in (3, 0, 1, 7, 2, 7)]
        return _run(task, options, graph, v1.global_variables_initializer(), runs)


def edges(task, options):
    """Strings, empty tensors, scalars, a handle and all sorts of types that cross tasks beside an ordinary variable."""
    with tf.Graph().as_default() as graph:
        weight = None
        with tf.device("/job:ps/task:0"):
            weight = common.variable("w", [64, 64], 1)
            table = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(tf.constant([1, 2]), tf.constant(["one", "two"])), "none"
            )
            keys = v1.placeholder(tf.int32, [None])
            texts = table.lookup(keys)
            empty = weight[:0]
            many = [tf.cast(weight[0], kind) for kind in (tf.int64, tf.float16, tf.bfloat16, tf.bool, tf.complex64)]
            ragged = tf.strings.split(texts, "")

        @tf.function(experimental_attributes={"_noinline": True})
        def ignores(handle, value):
            return value * 2.0

        with tf.device(common.here(task)):
            joined = tf.strings.reduce_join(texts)
            sizes = tf.concat([tf.shape(empty), tf.shape(ragged.flat_values)], 0)
            casts = [tf.cast(tf.math.real(one) if one.dtype.is_complex else one, tf.float32) for one in many]
            total = tf.add_n([tf.reduce_sum(one) for one in casts]) + tf.reduce_sum(weight)
            passed = ignores(weight.handle, total)
        init = [v1.global_variables_initializer(), v1.tables_initializer()]
        runs = [([joined, sizes, total, passed], {keys: list(range(number))}) for number in (0, 1, 4, 2)]
        return _run(task, options, graph, init, runs)


def feeds_and_fetches(task, options):
    """One session, one graph: another part of it in every run."""
    model = common.mlp(task, layers=6, width=64)
    graph = model.graph
    reads = [op for op in graph.get_operations() if op.type == "ReadVariableOp" and op.name.startswith("matmul")]
    outputs = [op for op in graph.get_operations() if op.type == "Tanh" and not op.name.startswith("gradients")]
    loss, train = model.fetches["loss"], model.fetches["train"]
    fed = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
    middle = np.ones([4, 64], np.float32)
    runs = [
        ([loss], {}),
        ([loss], {reads[2].outputs[0]: fed}),  # a tensor on the parameter server
        ([outputs[1].outputs[0]], {}),  # only the first layers
        ([loss], {outputs[3].outputs[0]: middle}),  # only the last layers: the low ranks are pruned
        ([outputs[5].outputs[0], reads[1].outputs[0]], {}),  # a source of a transfer is fetched itself
        ([reads[4].outputs[0]], {}),
        ([train], {}),
        ([loss, outputs[0].outputs[0]], {reads[0].outputs[0]: fed, reads[5].outputs[0]: fed}),
        ([model.fetches["steps"]], {}),
        ([loss], {}),
    ]
    return _run(task, options, graph, model.init, runs * 2)


def partial_runs(task, options):
    """The same session used by turns for forward and training steps of different cuts."""
    model = common.mlp(task, layers=4, width=64)
    runs = [([model.fetches[name]], {}) for name in ("loss", "train", "loss", "steps", "train", "train", "loss")]
    return _run(task, options, model.graph, model.init, runs)


def monitored(task, options, directory):
    """MonitoredTrainingSession with hooks, checkpoints and summaries; the second one restores what the first has saved."""
    losses = []
    for last in (6, 12):
        model = common.mlp(task, layers=4, width=64)
        with model.graph.as_default():
            v1.summary.scalar("loss", model.fetches["loss"])
            hooks = [v1.train.StopAtStepHook(last_step=last), v1.train.NanTensorHook(model.fetches["loss"])]
            with v1.train.MonitoredTrainingSession(
                master=task.target,
                is_chief=True,
                checkpoint_dir=directory,
                hooks=hooks,
                save_checkpoint_steps=3,
                save_summaries_steps=2,
                log_step_count_steps=2,
                config=common.session_config(task, options),
            ) as session:
                while not session.should_stop():
                    losses.append(_hex(session.run(model.fetches["train"])))
    assert os.path.exists(os.path.join(directory, "checkpoint"))
    return losses
