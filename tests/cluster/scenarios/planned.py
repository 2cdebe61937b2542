"""Training under MultiWorkerMirroredStrategy whose all-reduces are traced, planned, and looked at as they were sent."""

import itertools
import json
import time

import tensorflow as tf

from . import common, mirrored

# From the first layer on: the last one's gradient is ready first, needed last, and the largest.
_WIDTHS = (64, 128, 128, 128, 128, 1024)
_BATCH = 4
_WORK = 512


def _one_after_another(gradients, loss, then):
    """The same values, as a slow back-propagation makes them: a layer's weight and bias some ms behind those of the next.

    ``then`` is called when the last layer's are made, and the others are made when it has returned.
    """
    layers = len(gradients) // 2
    made, work = list(gradients), tf.fill([_WORK, _WORK], 1e-3 * loss)
    for layer in reversed(range(layers)):
        work = tf.tanh(work @ work)
        one = tf.clip_by_value(work[0, 0], 1.0, 1.0)
        both = layer, layers + layer
        for index in both:
            made[index] = gradients[index] * one
        # A busy processor could else leave them behind the next layer's work.
        with tf.control_dependencies([made[index] for index in both]):
            work = tf.identity(work)
            if then is not None and layer == layers - 1:
                work = tf.ensure_shape(tf.numpy_function(then, [work], tf.float32), work.shape)
    return made


def _until_the_largest_leaves(work, limit_s=60):
    """``work``, once a piece of the last layer's weight has left; its other pieces still wait for their turn."""
    import tfsched

    until = time.monotonic() + limit_s
    while not any(row["bytes"] > 4 * _WIDTHS[-1] for row in tfsched.transfers()):
        if time.monotonic() > until:
            raise TimeoutError(f"no piece of the last layer's weight left within {limit_s} s")
        time.sleep(0.001)
    return work


def _make_step(task, then=None):
    """A function of a step's number, and the variables; ``then`` as in ``_one_after_another``."""
    strategy = mirrored.join(task)
    with strategy.scope():
        weights = [
            tf.Variable(tf.random.stateless_normal([before, after], [layer, 5]) * before**-0.5)
            for layer, (before, after) in enumerate(itertools.pairwise(_WIDTHS))
        ]
        biases = [tf.Variable(tf.zeros([width])) for width in _WIDTHS[1:]]
    variables = [*weights, *biases]

    @tf.function
    def step(number):
        def replica(number):
            hidden = tf.random.stateless_normal([_BATCH, _WIDTHS[0]], [number, 3 + task.spec["index"]])
            with tf.GradientTape() as tape:
                for weight, bias in zip(weights, biases, strict=True):
                    hidden = tf.tanh(hidden @ weight + bias)
                loss = tf.reduce_mean(tf.square(hidden - 0.5))
            gradients = _one_after_another(tape.gradient(loss, variables), loss, then)
            gradients = tf.distribute.get_replica_context().all_reduce("sum", gradients)
            for variable, gradient in zip(variables, gradients, strict=True):
                variable.assign_sub(0.1 * gradient)
            return loss

        return strategy.run(replica, args=(number,))

    return step, variables


def trace(task, options, steps=2):
    """What the first worker traces of steps that all run; None of the others."""
    import tfsched

    mirrored.join(task, options)
    step, _ = _make_step(task)
    if task.spec["index"] == 0:
        return tfsched.trace_function(step, (tf.constant(0),), steps=steps).to_json()
    for _ in range(steps + 1):
        step(tf.constant(0))
    return None


def train(task, options=None, steps=4, urgent_behind_largest=False):
    """The variables after training; without ``options`` as stock TensorFlow does it.

    With ``urgent_behind_largest`` the more urgent gradients are made when the largest is on its way.
    """
    mirrored.join(task, options)
    step, variables = _make_step(task, _until_the_largest_leaves if urgent_behind_largest else None)
    for number in range(steps):
        if options is not None:
            import tfsched

            tfsched.drain()
            common.wait_until_sent()  # its peer may be behind: so the next step begins at about the same time
            tfsched.transfers(clear=True)
        task.state["planned begin_us"] = time.time_ns() // 1000
        step(tf.constant(number))
    if options is not None:
        tfsched.drain()
    return {"variables": [mirrored._text(one) for one in variables]}


def sent(task):
    """What this process's scheduler sent in the last step of ``train``, all of it."""
    import tfsched

    common.wait_until_sent()
    begin_us = task.state["planned begin_us"]
    sends = [row for row in tfsched.transfers() if row["rank"] >= 0 and row["ready_us"] >= begin_us]
    return json.loads(json.dumps(sends))
