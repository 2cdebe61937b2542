"""Changes of running schedulers, asked for from inside of a task."""

import time

import tensorflow as tf

import tfsched
import tfsched.ops.library


def change(task, session=None, target=None, on=None, **values):
    """tfsched.configure() with the session of that name, the target, or for this process: [reached, skipped]."""
    where = task.state[session].session if session else target
    result = tfsched.configure(where, task=on, **values)
    return [list(result.reached), result.skipped]


def raw(task, on, **values):
    """The op itself, as a client without tfsched's checks could run it."""
    with tf.Graph().as_default() as graph, tf.device(on):
        answer = tfsched.ops.library.load().tfsched_configure(**values)
    with tf.compat.v1.Session(task.target, graph=graph) as session:
        session.run(answer)


def timed(task, **arguments):
    """:func:`change`, or the text of its error, and how long it took."""
    began_s = time.monotonic()
    try:
        result = change(task, **arguments)
    except tfsched.TfschedError as error:
        result = str(error)
    return result, time.monotonic() - began_s
