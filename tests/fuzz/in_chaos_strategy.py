"""A coordinator that schedules steps which mark themselves until it is told to stop; runs inside of its task."""

import time

import tensorflow as tf
from scenarios import strategy as strategies

_MOST = 4096
_AHEAD = 40  # closures that wait for a worker


def count(task, options, sizes):
    """Schedules steps until :func:`stop`, and joins; how often each was applied to each variable."""
    strategy, coordinator = strategies.join(task)
    strategies.switch(options)
    with strategy.scope():
        marks = [tf.Variable(tf.zeros([_MOST + size])) for size in sizes]

    def mark(number):
        seen = tf.add_n([tf.reduce_sum(one) for one in marks])
        for index, one in enumerate(marks):
            nothing = tf.minimum(tf.abs(seen + index), 0.0)  # which Grappler does not know
            one.assign_add(tf.one_hot(number, _MOST + sizes[index]) + nothing)
        return seen

    step = tf.function(lambda number: strategy.run(mark, args=(number,)))
    values = []
    while not task.state.get("stop") and len(values) < _MOST:
        values.append(coordinator.schedule(step, args=(tf.constant(len(values)),)))
        if len(values) == 2 * _AHEAD:
            task.state["began"] = True
        # A result that has not been copied is lost with its worker, so none is fetched.
        while sum(not one._status_available_event.is_set() for one in values[-2 * _AHEAD :]) > _AHEAD:
            time.sleep(0.005)
    coordinator.join()
    return {"steps": len(values), "counts": [one.numpy()[: len(values)].tolist() for one in marks]}


def began(task):
    """Whether all tasks have long been connected: stock TensorFlow, too, ends a program whose first connections fail."""
    return task.state.get("began", False)


def stop(task):
    """Ends the schedule."""
    task.state["stop"] = True
