"""Training of a session whose transfers are traced, planned, and looked at as they were sent."""

import hashlib
import itertools

import numpy as np
import tensorflow as tf

from . import common
from .common import v1

_WIDTHS = (48, 96, 96, 32, 128, 64)
_BATCH = 4


def _graph(task, use_resource):
    """(graph, placeholder, loss, training op, initializer): layers and biases of several sizes, with Momentum."""
    with tf.Graph().as_default() as graph, v1.device(common.on_ps(task)):
        batch = v1.placeholder(tf.float32, [_BATCH, _WIDTHS[0]])
        hidden = batch
        for layer, (before, after) in enumerate(itertools.pairwise(_WIDTHS)):
            initial = np.random.RandomState(layer).randn(before, after).astype(np.float32) * before**-0.5
            weight = v1.get_variable(f"w{layer}", initializer=initial, use_resource=use_resource)
            bias = v1.get_variable(f"b{layer}", [after], initializer=v1.zeros_initializer(), use_resource=use_resource)
            hidden = tf.tanh(hidden @ weight + bias)
        loss = tf.reduce_mean(tf.square(hidden - 0.5))
        train_op = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        return graph, batch, loss, train_op, v1.global_variables_initializer()


def _feeds(count):
    draw = np.random.RandomState(3)
    return [draw.randn(_BATCH, _WIDTHS[0]).astype(np.float32) for _ in range(count)]


def trace(task, options=None, steps=3, use_resource=True):
    """The trace of some steps behind a first one, as JSON."""
    import tfsched

    graph, batch, loss, train_op, initializer = _graph(task, use_resource)
    with v1.Session(task.target, graph=graph, config=common.session_config(task, options)) as session:
        session.run(initializer)
        (value,) = _feeds(1)
        session.run(train_op, {batch: value})
        return tfsched.trace_steps(session, [loss, train_op], steps=steps, feed_dict={batch: value}).to_json()


def train(task, options=None, steps=4, use_resource=True):
    """{"losses": [hexadecimal], "variables": digests, "sends": rows of the last step, "report": the pass's last word}."""
    graph, batch, loss, train_op, initializer = _graph(task, use_resource)
    sends, report = [], ""
    with v1.Session(task.target, graph=graph, config=common.session_config(task, options)) as session:
        session.run(initializer)
        losses = []
        for value in _feeds(steps):
            if options is not None:
                _sent(session, task)
            losses.append(float(session.run([loss, train_op], {batch: value})[0]).hex())
        if options is not None:
            from tfsched.grappler.bridge import pass_stats

            report, sends = pass_stats().last_report, _sent(session, task)
        with graph.as_default():
            values = session.run({variable.name: variable for variable in v1.global_variables()})
    digests = {name: hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest() for name, value in values.items()}
    return {"losses": losses, "variables": digests, "sends": sends, "report": report}


def _sent(session, task):
    """What the servers and this worker have sent in order since they were asked last, once nothing is under way."""
    import tfsched

    tasks = [f"/job:ps/replica:0/task:{number}" for number in range(len(task.spec["cluster"]["ps"]))]
    tasks.append(f"/job:worker/replica:0/task:{task.spec['index']}")
    # A step across the barrier returns while its pushes, and what servers send ahead for them, are under way.
    tfsched.drain()
    common.wait_until_sent(lambda: [tfsched.stats(session, name) for name in tasks])
    rows = [row for name in tasks for row in tfsched.transfers(session, name, clear=True) if row["from"] == name]
    return [row for row in rows if row["rank"] >= 0]
