"""Which tasks know tfsched's ops as this process does: the others are left alone, and train as in stock TensorFlow.

TensorFlow 2 hands no description of a remote device to Python. So a task is asked, by an op that changes nothing, before
tfsched's first op is sent there. The answer holds until a call at the task fails: one that was restarted is asked again.
"""

from __future__ import annotations

import json
import threading
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as context_lib
from tensorflow.python.eager import executor

from tfsched._log import log
from tfsched.ops import control, library

_MARK = "capability"  # among a task's counters: what its devices bear, too (cc/transport/capability.h)
_OP = "TfschedStats"
_known: dict[str, bool] = {}
# A thread's own executor. It stays: whoever empties the context's caches may be waiting for it (python_lock.py).
_alone = threading.local()


def knows(task: str) -> bool:
    """Whether the task runs a tfsched that understands this one's ops.

    Args:
      task: of the cluster that this process has joined, and not its own: "/job:worker/replica:0/task:3".

    Raises:
      tf.errors.OpError: the task cannot be reached.
    """
    found = _known.get(task)
    if found is None:
        found = _known[task] = _ask(task)
        if not found:
            log.info("%s has no tfsched, or another version of it; what it runs is not scheduled.", task)
    return found


def forget(task: str) -> None:
    """A call at the task has failed: it may be another process when it is called next."""
    _known.pop(task, None)


def _ask(task: str) -> bool:
    ops = library.load()
    alone: Any = _alone.__dict__.get("executor")
    if alone is None:
        # An error of an op that is streamed would be told to the ops behind it as well.
        alone = _alone.executor = executor.new_executor(enable_async=False, enable_streaming_enqueue=False)
    try:
        with context_lib.executor_scope(alone), tf.device(f"{task}/device:CPU:0"):
            told = json.loads(ops.tfsched_stats().numpy())
    except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
        if _OP not in str(error):
            raise  # of the task, and not of the op
        return False
    finally:
        alone.clear_error()  # it would be told to the next that is asked
    # Who has loaded the library but serves as stock TensorFlow does runs nothing in the background.
    return bool(told["servers"] and told.get(_MARK) == control.stats()[_MARK])
