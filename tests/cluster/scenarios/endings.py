"""What a coordinator leaves behind: closures, what they were given, and itself."""

import gc
import threading
import time
import weakref

import tensorflow as tf

from . import counting

_GONE_S = 20


def iterators(task, options):
    """How many of the workers' resources are alive when the program has deleted its iterators."""
    coordinator, _, step = counting._prepare(task, options, 20)
    for _ in range(3):
        step_on, made = counting._with_data(coordinator, step)
        for number in range(10):
            coordinator.schedule(step_on, args=(made, tf.constant(number)))
        coordinator.join()
    del made, step_on
    refs = [ref for worker in coordinator._cluster.workers for ref in worker._resource_remote_value_refs]
    deadline_s = time.monotonic() + _GONE_S
    while True:  # a worker's thread tells of its closure a moment before it lets go of it
        gc.collect()
        alive = sum(ref() is not None for ref in refs)
        if not alive or time.monotonic() > deadline_s:
            return {"made": len(refs), "alive": alive}
        time.sleep(0.1)


def drains(task, options, count=8):
    """Waits with another time limit each time, which makes another function each time."""
    import tfsched

    coordinator, _, step = counting._prepare(task, options, count)
    for number in range(count):
        coordinator.schedule(step, args=(tf.constant(number),)).fetch()
        tfsched.drain(timeout_s=20 + number)


def coordinator(task, options):
    """Whether a coordinator that the program has let go is collected, and which of its threads still run."""
    before = set(threading.enumerate())
    made = weakref.ref(_train(task, options))
    deadline_s = time.monotonic() + _GONE_S
    while True:
        gc.collect()
        left = [
            one.name for one in set(threading.enumerate()) - before if one.name.startswith(("tfsched-confirm", "Worker"))
        ]
        if (made() is None and not left) or time.monotonic() > deadline_s:
            return {"collected": made() is None, "threads": sorted(left)}
        time.sleep(0.1)


def _train(task, options):
    made, counters, step = counting._prepare(task, options, 20)
    step_on, data = counting._with_data(made, step)
    for number in range(20):
        made.schedule(step_on, args=(data, tf.constant(number)))
    made.join()
    assert counters.counts() == [[1] * 20] * 4
    for name in ("strategy", "coordinator"):
        task.state.pop(name)
    return made
