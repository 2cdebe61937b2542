"""Training that counts itself, for clusters that break under it: what variables hold tells which updates they have had."""

import os
import random
import time

import numpy as np
import tensorflow as tf

from . import common
from .common import v1


def build(task, variables=4, elements=1 << 16, prefix="counted"):
    """Momentum training whose every gradient is 1 in every element, but nobody can know that without the values.

    After n updates all elements of a variable are -n(n+1)/2 and those of its slot n, both exactly: an update that is lost,
    doubled or applied in part shows.

    Fetches: "train" is a step, "gated" one that has no gradients before the gate is open, "values" all there is to count.
    Feed: "shape" is what the last but one variable's gradient is given as its shape.
    """
    with tf.Graph().as_default() as graph, v1.device(common.on_ps(task)):
        step = v1.train.get_or_create_global_step()
        counted = [
            v1.get_variable(f"{prefix}{number}", [elements], initializer=v1.zeros_initializer(), use_resource=True)
            for number in range(variables)
        ]
        gradients = [tf.sign(tf.abs(one.read_value()) + 1.0) for one in counted]
        shape = v1.placeholder_with_default(tf.constant([elements]), [None])
        passed = _gate(task).dequeue()
        optimizer = v1.train.MomentumOptimizer(1.0, 1.0)

        def train(factor):
            mine = [gradient if factor is None else gradient * factor for gradient in gradients]
            mine[-2] = tf.reshape(mine[-2], shape)
            return optimizer.apply_gradients(zip(mine, counted, strict=True), global_step=step)

        fetches = {"train": train(None), "gated": train(passed), "shape": shape, "step": step}
        fetches["values"] = {
            one.op.name: (one.read_value(), optimizer.get_slot(one, "momentum").read_value()) for one in counted
        }
        return common.Model(graph, fetches, v1.global_variables_initializer())


def open_training(task, options, init=True, config="new", filters=(), **model):
    """Opens a session, which stays in this process; with ``config`` "kept" it is the last one's client again."""
    built = build(task, **model)
    if config == "new":
        task.state["config"] = common.session_config(task, options, filters)
    built.session = v1.Session(task.target, graph=built.graph, config=task.state["config"])
    task.state["training"] = built
    if init:
        built.session.run(built.init)


def steps(task, count=1, fetch="train", shape=None, timeout_ms=None):
    """Steps; ``shape`` is fed to each."""
    built = task.state["training"]
    feed = {built.fetches["shape"]: shape} if shape else None
    run_options = v1.RunOptions(timeout_in_ms=timeout_ms) if timeout_ms else None
    for _ in range(count):
        built.session.run(built.fetches[fetch], feed, options=run_options)


def failures(task, count, shape):
    """So many updates that fail, each told by the step behind it; returns how many were."""
    told = 0
    for _ in range(count):
        try:
            steps(task, shape=shape)
            steps(task)
        except tf.errors.InvalidArgumentError as error:
            assert "tfsched: the background update of" in error.message, error.message
            told += 1
    return told


def close(task):
    """Closes the session."""
    task.state["training"].session.close()


def _gate(task):
    """A queue that a step takes one element of."""
    with tf.device(common.here(task)):
        return tf.queue.FIFOQueue(100, tf.float32, shapes=[[]], shared_name="gradients")


def open_gate(task):
    """Lets one step through that fetches "gated", from a stock session of this task alone, which waits for nothing."""
    with tf.Graph().as_default() as graph:
        opened = _gate(task).enqueue(1.0)
    with v1.Session(task.target, graph=graph, config=common.session_config(task, filters=[common.here(task)])) as session:
        session.run(opened)


def counts(task, **model):
    """How many updates each variable has had, seen by a stock session that needs no worker.

    Raises where a variable does not hold whole updates.
    """
    built = build(task, **model)
    config = common.session_config(task, filters=["/job:ps", common.here(task)])
    with v1.Session(task.target, graph=built.graph, config=config) as session:
        values = session.run(built.fetches["values"])
    return {name: _count(name, *both) for name, both in values.items()}


def _count(name, value, slot):
    count = int(slot[0])
    if not (np.all(slot == count) and np.all(value == -count * (count + 1) / 2)):
        seen = [float(one) for array in (value, slot) for one in (array.min(), array.max())]
        raise AssertionError(
            f"{name} has part of an update: value from {seen[0]} to {seen[1]}, slot from {seen[2]} to {seen[3]}"
        )
    return count


def pid(task):
    """The process that answers."""
    return os.getpid()


def drawn(task):
    """Random numbers that must differ between tasks: TensorFlow's, Python's, the client's of a session."""
    import tfsched
    from tfsched.grappler.config import optimizers

    config = tfsched.session_config(tfsched.Options(barrier=False))
    with v1.Session(task.target) as session:
        incarnations = {one.name: one.incarnation for one in session.list_devices()}
    return {
        "incarnation": incarnations[f"/job:{task.spec['job']}/replica:0/task:{task.spec['index']}/device:CPU:0"],
        "python": random.random(),
        "client": optimizers(config)[0].parameter_map["client"].s.decode(),
    }


def sleep(task):
    """Takes longer than any test."""
    time.sleep(600)
