"""Steps whose transfers wait for something that the test controls."""

import tensorflow as tf

from . import common
from .common import v1


def held(task):
    """A forward step whose first transfer waits for "release", with a string that goes the same way.

    "early" is the string alone; "sum" needs the held value first, then eight variables.
    """
    with tf.Graph().as_default() as graph, v1.device(common.on_ps(task)):
        variables = [common.variable(f"w{number}", [64, 64], number) for number in range(8)]
        with tf.device("/job:ps/task:0"):
            queue = tf.queue.FIFOQueue(100, tf.float32, shapes=[[64, 64]], shared_name="held")
            first = queue.dequeue()
            release = queue.enqueue(tf.ones([64, 64]))
            text = tf.strings.as_string(tf.reduce_sum(variables[0]))
        value = tf.tanh(first)
        for one in variables:
            value = tf.tanh(value @ one)
        with tf.device(common.here(task)):
            # A queue here, so that another session can see that the text has come.
            arrived = tf.queue.FIFOQueue(100, tf.string, shapes=[[]], shared_name="texts")
            put = arrived.enqueue(tf.strings.join([text, ""]))
            get = arrived.dequeue()
        with tf.control_dependencies([put]):
            total = tf.identity(tf.reduce_sum(value))
        fetches = {"sum": total, "release": release, "early": get}
        return common.Model(graph, fetches, v1.global_variables_initializer())


def open_held(task, options):
    """Two sessions of the same model: one for the step, one to look at it and to end it."""
    for name in ("held", "beside"):
        model = held(task)
        model.session = v1.Session(task.target, graph=model.graph, config=common.session_config(task, options))
        task.state[name] = model
    task.state["beside"].session.run(task.state["beside"].init)


def fetch(task, name, what):
    """Runs a fetch, whatever its type; returns its text."""
    model = task.state[name]
    return str(model.session.run(model.fetches[what]))


def remote_transfers(task, name, of):
    """The transfers of task ``of``, as a user reads them."""
    import tfsched

    return tfsched.transfers(task.state[name].session, of)


def remote_stats(task, name, of):
    """The counters of task ``of``, as a user reads them."""
    import tfsched

    return tfsched.stats(task.state[name].session, of)
