"""Training with and without the barrier. What is compared is every loss, and every variable at the end."""

import hashlib

import numpy as np
import tensorflow as tf

from . import common
from .common import v1

_WIDTH = 48
_BATCH = 4


def _momentum_by_hand(gradients, variables):
    """An optimizer of plain assignments, as user code and newer optimizers have it."""
    updates = []
    for number, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
        with v1.device(variable.device):
            slot = v1.get_variable(f"slot{number}", variable.shape, initializer=v1.zeros_initializer(), use_resource=True)
            moved = 0.9 * slot.read_value() + gradient
            updates.append(slot.assign(moved, read_value=False))
            updates.append(variable.assign_sub(0.1 * moved, read_value=False))
    return tf.group(*updates)


OPTIMIZERS = {
    "sgd": lambda rate: v1.train.GradientDescentOptimizer(rate),
    "momentum": lambda rate: v1.train.MomentumOptimizer(rate, 0.9),
    "adam": lambda rate: v1.train.AdamOptimizer(rate * 0.1),
    "rmsprop": lambda rate: v1.train.RMSPropOptimizer(rate * 0.01, momentum=0.5),
    "adagrad": lambda rate: v1.train.AdagradOptimizer(rate),
    "by_hand": None,
}


def build(task, optimizer="adam", clip=False, layers=4, workers=1, decay=True, own=None):
    """A chain of layers with weights and biases on the parameter servers, trained by ``workers`` towers in one graph."""
    with tf.Graph().as_default() as graph, v1.device(common.on_ps(task, own)):
        v1.set_random_seed(1)
        step = v1.train.get_or_create_global_step()
        batch = v1.placeholder(tf.float32, [workers, _BATCH, _WIDTH], name="batch")
        weights, biases = [], []
        for layer in range(layers):
            weights.append(common.variable(f"w{layer}", [_WIDTH, _WIDTH], layer))
            biases.append(v1.get_variable(f"b{layer}", [_WIDTH], initializer=v1.zeros_initializer(), use_resource=True))
        variables = [*weights, *biases]
        towers, losses = [], []
        for worker in range(workers):
            with v1.device(own or f"/job:worker/task:{worker}"), v1.name_scope(f"tower{worker}"):
                hidden = batch[worker]
                for weight, bias in zip(weights, biases, strict=True):
                    hidden = tf.tanh(hidden @ weight.read_value() + bias.read_value())
                losses.append(tf.reduce_mean(tf.square(hidden - 0.5)))
                towers.append(tf.gradients(losses[-1], variables))
        gradients = towers[0]
        if workers > 1:
            gradients = []
            for each, variable in zip(zip(*towers, strict=True), variables, strict=True):
                with v1.device(variable.device):
                    gradients.append(tf.add_n(each) / workers)
        if clip:
            gradients, _ = tf.clip_by_global_norm(gradients, 0.05)
        rate = v1.train.exponential_decay(0.5, step, 10, 0.9) if decay else 0.5
        if OPTIMIZERS[optimizer] is None:
            with v1.control_dependencies([_momentum_by_hand(gradients, variables)]):
                train = v1.assign_add(step, 1)
        else:
            train = OPTIMIZERS[optimizer](rate).apply_gradients(zip(gradients, variables, strict=True), global_step=step)
        fetches = {"loss": tf.add_n(losses), "train": train, "step": step, "batch": batch}
        return common.Model(graph, fetches, v1.global_variables_initializer())


def feeds(steps, workers=1, seed=3):
    """The same random batches for everybody."""
    draw = np.random.RandomState(seed)
    return [draw.randn(workers, _BATCH, _WIDTH).astype(np.float32) for _ in range(steps)]


def digest(values):
    """Name -> digest of the bytes."""
    return {name: hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest() for name, value in values.items()}


def train(task, options, steps, workers=1, **model):
    """Trains and returns losses, digests of all variables, and what the pass said of the barrier."""
    tf.config.experimental.enable_op_determinism()
    tf.random.set_seed(1)
    built = build(task, workers=workers, **model)
    config = common.session_config(task, options, operation_timeout_in_ms=120_000)
    with v1.Session(task.target, graph=built.graph, config=config) as session:
        session.run(built.init)
        losses = [
            float(session.run([built.fetches["loss"], built.fetches["train"]], {built.fetches["batch"]: feed})[0]).hex()
            for feed in feeds(steps, workers)
        ]
        with built.graph.as_default():
            values = session.run({variable.name: variable for variable in v1.global_variables()})
    return {"losses": losses, "variables": digest(values)}


def two_kinds_of_steps(task, options, steps):
    """Trains in one session by two optimizers in turn, the second on every other variable and only now and then.

    Returns the digests of all variables.
    """
    tf.config.experimental.enable_op_determinism()
    built = build(task)
    with built.graph.as_default(), v1.device(common.on_ps(task)):
        some = v1.trainable_variables()[::2]
        gradients = [0.01 * variable.read_value() for variable in some]
        decay = v1.train.MomentumOptimizer(0.5, 0.9).apply_gradients(zip(gradients, some, strict=True))
        init = v1.global_variables_initializer()
    with v1.Session(task.target, graph=built.graph, config=common.session_config(task, options)) as session:
        session.run(init)
        for number, feed in enumerate(feeds(steps)):
            session.run(built.fetches["train"], {built.fetches["batch"]: feed})
            if number % 3 == 1:
                session.run(decay)
            if number % 4 == 2:
                session.run([built.fetches["train"], built.fetches["loss"]], {built.fetches["batch"]: feed})
        with built.graph.as_default():
            return digest(session.run({variable.name: variable for variable in v1.global_variables()}))


def passed(task):
    """What the pass did in this process so far."""
    from tfsched.grappler.bridge import pass_stats
    from tfsched.ops.library import c_api

    seen = pass_stats()
    return {
        "crossing": seen.crossing,
        "kept": seen.kept,
        "errors": seen.errors,
        "last_error": seen.last_error,
        "link_bps": c_api().tfsched_link_bps(),
        "partition_bytes": seen.options and seen.options.partition_bytes,
        "credit_bytes": seen.options and seen.options.credit_bytes,
    }


def every_step(task, options, steps, **model):
    """Trains, and after every step reads its number and all variables in runs of their own, as an evaluation does."""
    tf.config.experimental.enable_op_determinism()
    built = build(task, **model)
    seen = []
    with v1.Session(task.target, graph=built.graph, config=common.session_config(task, options)) as session:
        session.run(built.init)
        with built.graph.as_default():
            variables = {variable.name: variable for variable in v1.global_variables()}
        for feed in feeds(steps):
            session.run(built.fetches["train"], {built.fetches["batch"]: feed})
            seen.append([int(session.run(built.fetches["step"])), digest(session.run(variables))])
    return seen


def monitored(task, options, directory, until, save_every, optimizer="adam"):
    """MonitoredTrainingSession with its hooks until a step; starts from the newest checkpoint in ``directory``.

    Returns the losses, and by step of every checkpoint the digests of what it holds.
    """
    tf.config.experimental.enable_op_determinism()
    tf.random.set_seed(1)
    built = build(task, optimizer=optimizer)
    batches = feeds(until)
    losses, held = [], {}
    with built.graph.as_default():
        saver = v1.train.Saver(max_to_keep=100)
        scaffold = v1.train.Scaffold(saver=saver)
        hooks = [
            v1.train.StopAtStepHook(last_step=until),
            v1.train.CheckpointSaverHook(directory, save_steps=save_every, scaffold=scaffold),
            v1.train.LoggingTensorHook({"loss": built.fetches["loss"]}, every_n_iter=7),
            v1.train.StepCounterHook(every_n_steps=5, output_dir=directory),
        ]
        if options is not None:
            import tfsched

            hooks.append(tfsched.DrainHook())
        with v1.train.MonitoredTrainingSession(
            master=task.target,
            checkpoint_dir=directory,
            scaffold=scaffold,
            hooks=hooks,
            save_checkpoint_secs=None,
            save_checkpoint_steps=None,
            log_step_count_steps=None,
            save_summaries_steps=None,
            save_summaries_secs=None,
            config=common.session_config(task, options),
        ) as session:
            first = int(session.run_step_fn(lambda step_context: step_context.session.run(built.fetches["step"])))
            for number in range(first, until):
                feed = {built.fetches["batch"]: batches[number]}
                loss, _ = session.run([built.fetches["loss"], built.fetches["train"]], feed)
                losses.append(float(loss).hex())
            stopped = session.should_stop()
    for path in tf.train.get_checkpoint_state(directory).all_model_checkpoint_paths:
        reader = tf.train.load_checkpoint(path)
        values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
        held[path.rpartition("-")[2]] = digest(values)
    return {"first": first, "losses": losses, "stopped": stopped, "checkpoints": held}


def _counted(task, width, name="counted", device=None):
    """A variable whose elements are all equal, and a step that takes 1 from each of them through the worker."""
    with tf.Graph().as_default() as graph, v1.device(common.on_ps(task, device)):
        counted = v1.get_variable(name, [width], initializer=v1.zeros_initializer(), use_resource=True)
        # 1 everywhere, but nobody can know without the value.
        value = counted.read_value()
        gradient = tf.sign(tf.abs(value) + 1.0)
        train = v1.train.GradientDescentOptimizer(1.0).apply_gradients([(gradient, counted)])
        given = v1.placeholder(tf.float32, [])
        assign = counted.assign(tf.fill([width], given), read_value=False)
        seen = tf.reduce_max(value)  # what the training step itself has read
        fetches = {"train": train, "value": counted.read_value(), "seen": seen, "given": given, "assign": assign}
        return common.Model(graph, fetches, v1.global_variables_initializer())


def count(task, options, steps, width=1 << 18, init=True, close=True):
    """Trains the counted variable; every element is ``-steps`` lower then."""
    built = _counted(task, width)
    session = v1.Session(task.target, graph=built.graph, config=common.session_config(task, options))
    if init:
        session.run(built.init)
    for _ in range(steps):
        session.run(built.fetches["train"])
    if close:
        session.close()
    task.state["counting"] = session


def look(task, reads=1, width=1 << 18):
    """Reads the counted variable from a stock session; [smallest, largest element] of each read."""
    built = _counted(task, width)
    with v1.Session(task.target, graph=built.graph, config=common.session_config(task)) as session:
        values = [session.run(built.fetches["value"]) for _ in range(reads)]
    return [[float(value.min()), float(value.max())] for value in values]


def overwritten(task, options, steps, foreign, width=1 << 16):
    """Between steps, writes 10, 20, ... into the counted variable; returns what each step has read.

    Args:
      foreign: write from a stock session, behind a drain, instead of the training one.
    """
    import tfsched

    built = _counted(task, width, name="overwritten")
    fetches = built.fetches
    seen = []
    with (
        v1.Session(task.target, graph=built.graph, config=common.session_config(task, options)) as session,
        v1.Session(task.target, graph=built.graph, config=common.session_config(task)) as other,
    ):
        session.run(built.init)
        for number in range(1, steps + 1):
            seen.append(float(session.run([fetches["seen"], fetches["train"]])[0]))
            if foreign:
                tfsched.drain(session, 60)
            writer = other if foreign else session
            if number % 2:  # every other value is the one that was sent ahead
                writer.run(fetches["assign"], {fetches["given"]: 10.0 * number})
    return seen
