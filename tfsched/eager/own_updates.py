"""A process whose own functions leave updates in its own memory: a worker of MultiWorkerMirroredStrategy.

There a variable is read by whatever this process does next, and each kind of reader waits for the updates that have to be in
what it sees:

  the next training step          by itself: the pass has put a wait in front of each variable
  any other tf.function           before it begins, for the variables that it takes
  a variable used by name         when its handle is asked for, for that variable
  drain(), disable(), the end     for everything
  a dataset's function            cannot wait, so with one that uses a variable all steps keep the barrier

Which functions wait by themselves is known when the pass has cut them and a call of them has begun a background function.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import structured_function
from tensorflow.python.eager import context as context_lib
from tensorflow.python.framework import ops

from tfsched._log import say_once
from tfsched.eager.config import Setting
from tfsched.grappler import crossed_functions
from tfsched.ops import control, library

Function = tuple[bytes, Setting | None]

# Function -> whether its calls wait by themselves; missing as long as that is not known.
_waits: dict[Function, bool] = {}
# Whether steps keep the barrier from now on.
refused = False
_MOST = 10_000  # functions that are remembered: a program that traces without end must not grow by it


@functools.lru_cache(maxsize=1)
def watch() -> None:
    """Has this process see, from now on, which datasets' functions use variables: they run when nobody calls them."""
    wrapper = structured_function.StructuredFunctionWrapper
    stock = wrapper.__init__

    @functools.wraps(stock)
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        global refused
        stock(self, *args, **kwargs)
        used = [one for one in self.function.captured_inputs if _is_variable(one)]
        if refused or not used:
            return
        refused = True
        if is_member():
            # What earlier steps have left under way, too; a function that makes the dataset waits for its own inputs.
            wait_for([one for one in used if isinstance(one, ops.EagerTensor)])
            say_once("a dataset's function uses a variable, and nobody could tell when it reads it: steps keep the barrier.")

    wrapper.__init__ = make


def _is_variable(captured: Any) -> bool:
    """Whether a function's captured input is a variable's handle."""
    if getattr(captured, "dtype", None) != tf.resource:
        return False
    data = getattr(captured, "_handle_data", None)
    return data is not None and data.is_set and len(data.shape_and_type) == 1


def is_member() -> bool:
    """Whether this process is a worker of a strategy whose workers all-reduce."""
    return context_lib.context()._collective_ops_server_def is not None


def waits_by_itself(function: Function) -> bool | None:
    """Whether calls of the function wait for updates; None if it is not known yet, and so may be either."""
    return _waits.get(function)


def before_call(function: Function) -> int | None:
    """What :func:`after_call` wants to know of a call that is about to begin; None if there is nothing to learn from it."""
    if not is_member() or _waits.get(function):
        return None
    return -1 if function in _waits else _begun()


def after_call(function: Function, before: int) -> bool:
    """The call has returned; whether it may have left updates under way, which nobody has expected of it."""
    name, setting = function
    cut = setting is not None and crossed_functions.is_cut(name.decode(), setting.key)
    expected = function not in _waits
    if len(_waits) >= _MOST:
        _waits.clear()
    if not cut:
        _waits[function] = False
    elif expected and _begun() > before:
        _waits[function] = True
    else:  # TensorFlow may have thrown away what the pass has made: it is not known
        _waits.pop(function, None)
    return cut and not expected


def _begun() -> int:
    """How many background functions this process has begun."""
    return int(control.stats()["background_calls"])


def wait_for(inputs: Sequence[Any]) -> None:
    """Waits until the variables among the tensors have all updates of steps that have returned.

    A step that computes is not waited for: it may wait for the caller, a Python function or a dataset's generator, say.
    """
    resources = [one for one in inputs if one.dtype == tf.resource and "CPU" in one.device.upper()]
    if resources:
        with tf.device(_host()):
            library.load().tfsched_wait(resources=resources, client="")


@functools.lru_cache(maxsize=1)
def _host() -> str:
    server_def = context_lib.context()._collective_ops_server_def
    return f"/job:{server_def.job_name}/replica:0/task:{server_def.task_index}/device:CPU:0"
