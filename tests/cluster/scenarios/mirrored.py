"""Training with MultiWorkerMirroredStrategy: each worker runs the same program, whose context starts the server."""

import contextlib
import threading
import time

import tensorflow as tf

from . import common

_WIDTH = 40
_WIDE = 1024
_LAYERS = 4
_BATCH = 4


def join(task, options=None, bytes_per_pack=0):
    """The strategy of this process, made once; ``options`` (a dict) switch tfsched on, None leaves it off."""
    if options is not None:
        import tfsched

        tfsched.enable(tfsched.Options(**options))
    if "mirrored" not in task.state:
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": task.spec["cluster"]["worker"]}),
            task_type="worker",
            task_id=task.spec["index"],
            rpc_layer=task.spec["protocol"],
        )
        communication = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=bytes_per_pack)
        task.state["mirrored"] = tf.distribute.MultiWorkerMirroredStrategy(resolver, communication)
    return task.state["mirrored"]


def leave_stock(task):
    """Undoes ``tfsched.enable``."""
    import tfsched

    tfsched.disable()


class Model(tf.Module):
    """A chain of layers: two weights large enough to be exchanged alone, and small tensors."""

    def __init__(self):
        super().__init__()
        self.variables_ = []
        for layer in range(_LAYERS):
            width = _WIDE if layer == 1 else _WIDTH
            before = _WIDE if layer == 2 else _WIDTH
            weight = tf.random.stateless_normal([before, width], [layer, 1]) * before**-0.5
            self.variables_ += [tf.Variable(weight), tf.Variable(tf.zeros([width]))]

    def loss(self, batch):
        """Of a batch of vectors."""
        hidden = batch
        for weight, bias in zip(self.variables_[::2], self.variables_[1::2], strict=True):
            hidden = tf.tanh(hidden @ weight + bias)
        return tf.reduce_mean(tf.square(hidden - 0.5))


class Descent:
    """Gradient descent by assignments, whose gradients are reduced as ``dtype``."""

    def __init__(self, momentum=0.0, dtype="float32"):
        self.momentum, self.dtype, self.variables = momentum, tf.as_dtype(dtype), []

    def build(self, variables):
        """Makes the slots."""
        self.variables = [tf.Variable(tf.zeros_like(variable)) for variable in variables] if self.momentum else []

    def apply_gradients(self, pairs):
        """Reduces the gradients and takes them off."""
        gradients, variables = zip(*pairs, strict=True)
        gradients = [tf.cast(gradient, self.dtype) for gradient in gradients]
        gradients = tf.distribute.get_replica_context().all_reduce("sum", gradients)
        for number, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
            gradient = tf.cast(gradient, variable.dtype)
            if self.momentum:
                slot = self.variables[number]
                gradient = slot.assign(self.momentum * slot + gradient)
            variable.assign_sub(0.1 * gradient)


def _rule(name, dtype="float32"):
    import tf_keras

    return {
        "descent": lambda: Descent(0.0, dtype),
        "momentum": lambda: Descent(0.9, dtype),
        "sgd": lambda: tf_keras.optimizers.SGD(0.1, momentum=0.9),
        "adam": lambda: tf_keras.optimizers.Adam(0.01),
    }[name]()


def train(
    task, options=None, rule="descent", steps=10, dtype="float32", bytes_per_pack=0, first=0, around=contextlib.nullcontext
):
    """A custom loop, ``around()`` each step; the losses and every variable afterwards, as hexadecimal text."""
    strategy = join(task, options, bytes_per_pack)
    with strategy.scope():
        model, rule = Model(), _rule(rule, dtype)
        rule.build(model.variables_)

    @tf.function
    def step(number):
        def replica(number):
            batch = tf.random.stateless_normal([_BATCH, _WIDTH], [number, 7 + task.spec["index"]])
            with tf.GradientTape() as tape:
                loss = model.loss(batch)
            rule.apply_gradients(list(zip(tape.gradient(loss, model.variables_), model.variables_, strict=True)))
            return loss

        return strategy.run(replica, args=(number,))

    losses = []
    for number in range(first, first + steps):
        with around():
            losses.append(_text(step(tf.constant(number))))
    return {"losses": losses, "variables": [_text(one) for one in [*model.variables_, *rule.variables]]}


def train_integers(task, options=None, steps=3):
    """Sums of integers, which are exact in any order; the reduced tensors as lists, and the wanted ones."""
    strategy = join(task, options)
    workers = len(task.spec["cluster"]["worker"])
    sizes = [1, 7, 33, 1000, 40_001]

    def mine(worker, step):
        return [
            tf.round(100 * tf.random.stateless_normal([size], [worker, step * 1000 + number]))
            for number, size in enumerate(sizes)
        ]

    @tf.function
    def reduced(step):
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", mine(task.spec["index"], step)))

    for step in range(steps):
        got = [strategy.experimental_local_results(one)[0] for one in reduced(tf.constant(step))]
        wanted = [tf.add_n(parts) for parts in zip(*(mine(worker, step) for worker in range(workers)), strict=True)]
        for one, other in zip(got, wanted, strict=True):
            if not bool(tf.reduce_all(one == other)):
                return False
    return True


def reduce_at_once(task, sizes, steps, options):
    """All-reduces tensors of so many elements, all of them at once; what this worker sent in each step."""
    strategy = join(task, options)

    @tf.function
    def reduced(number):
        def replica():
            mine = [tf.reshape(tf.fill([size, 1], tf.cast(number, tf.float32)), [size]) for size in sizes]
            return tf.distribute.get_replica_context().all_reduce("sum", mine)

        return [strategy.experimental_local_results(one)[0][0] for one in strategy.run(replica)]

    import tfsched

    sends = []
    for number in range(steps):
        begin_us = time.time_ns() // 1000
        reduced(tf.constant(number))
        common.wait_until_sent()
        sends.append([row for row in tfsched.transfers() if row["rank"] >= 0 and row["ready_us"] >= begin_us])
    return sends


def fit(task, options=None, epochs=2, steps_per_execution=1, rule="adam"):
    """tf_keras' Model.fit; the history and every variable afterwards, as hexadecimal text."""
    import tf_keras

    strategy = join(task, options)
    with strategy.scope():
        tf_keras.utils.set_random_seed(1)
        model = tf_keras.Sequential(
            [tf_keras.layers.Dense(160, activation="tanh", input_shape=(_WIDTH,)) for _ in range(1)]
            + [tf_keras.layers.Dense(160, activation="tanh"), tf_keras.layers.Dense(_WIDTH)]
        )
        model.compile(_rule(rule), loss="mse", metrics=["mae"], steps_per_execution=steps_per_execution)
    inputs = tf.random.stateless_normal([64, _WIDTH], [1, 2])
    data = tf.data.Dataset.from_tensor_slices((inputs, tf.roll(inputs, 1, axis=1))).batch(8)
    history = model.fit(data, epochs=epochs, verbose=0)
    values = [_text(variable) for variable in [*model.variables, *model.optimizer.variables]]
    return {"losses": [loss.hex() for loss in map(float, history.history["loss"])], "variables": values}


def begin(task, options=None, pause_s=0.02):
    """Trains in the background until :func:`end`, or until a step fails."""
    strategy = join(task, options)
    with strategy.scope():
        model, rule = Model(), Descent()

    @tf.function
    def step(number):
        def replica(number):
            batch = tf.random.stateless_normal([_BATCH, _WIDTH], [number, task.spec["index"]])
            with tf.GradientTape() as tape:
                loss = model.loss(batch)
            rule.apply_gradients(list(zip(tape.gradient(loss, model.variables_), model.variables_, strict=True)))
            return loss

        return strategy.run(replica, args=(number,))

    state = task.state["background"] = {"steps": 0, "error": None, "over": threading.Event()}

    def run():
        try:
            while not state["over"].wait(pause_s):
                step(tf.constant(state["steps"])).numpy()
                state["steps"] += 1
        except Exception as error:
            state["error"] = {"kind": type(error).__name__, "message": str(error)}

    task.state["thread"] = threading.Thread(target=run, daemon=True)
    task.state["thread"].start()


def abort(task):
    """What the strategy's health check does when a peer does not answer."""
    from tensorflow.python.eager import context

    context.context().abort_collective_ops(tf.errors.UNAVAILABLE, "a peer looks dead")


def progress(task):
    """How many steps the background training has made, and the error that has ended it."""
    return {key: task.state["background"][key] for key in ("steps", "error")}


def passes(task):
    """What the pass did in this process, and its last error."""
    from tfsched.grappler.bridge import pass_stats

    stats = pass_stats()
    return {
        "exchanged": stats.exchanged,
        "errors": stats.errors,
        "last_error": stats.last_error,
        "report": stats.last_report,
    }


def _text(value):
    import numpy as np

    value = value.numpy() if hasattr(value, "numpy") else value
    return np.asarray(value).tobytes().hex()
