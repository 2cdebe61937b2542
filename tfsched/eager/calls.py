"""Gives each eager call of a tf.function the options that are in force for it: a wrap, made when first used.

TensorFlow sends a serialized ConfigProto along with every call; the worker's Grappler reads it, and another config is
another instantiation of the function. It is exchanged there, call by call, and not in the context or in a thread's cached
options: so threads that have cached theirs (a coordinator's, Keras') follow as well, what the user configures before or
later stays, and calls that are only traced into another function leave the traced graph as it is.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tensorflow.python.eager import context as context_lib
from tensorflow.python.eager import execute

from tfsched.eager import outstanding
from tfsched.eager.config import Setting
from tfsched.eager.thread import current
from tfsched.grappler.bridge import install

_LOCK = threading.Lock()


_process: Setting | None = None
# Name of a traced function -> what it was decorated with.
_by_function: dict[bytes, Setting] = {}


def in_force() -> Setting | None:
    """What a call on this thread runs with, unless its function has options of its own."""
    return current.scopes[-1] if current.scopes else _process


def set_process(setting: Setting | None) -> None:
    """Sets what holds where nothing else does."""
    global _process
    _wrap()
    _process = setting


@contextmanager
def scope(setting: Setting) -> Iterator[None]:
    """Within it, this thread's calls run with ``setting``."""
    _wrap()
    current.scopes.append(setting)
    try:
        yield
    finally:
        current.scopes.pop()


def remember(name: bytes, setting: Setting) -> None:
    """The traced function ``name`` runs with ``setting``, whoever calls it on whichever thread."""
    _by_function[name] = setting


def forget(name: bytes) -> None:
    """Undoes :func:`remember`."""
    _by_function.pop(name, None)


@functools.lru_cache(maxsize=1)
def _wrap_once() -> None:
    install()  # a function that runs in this process needs the optimizer that its config names
    stock_call = context_lib.Context.call_function
    stock_attrs = context_lib.FunctionCallOptions.as_attrs

    @functools.wraps(stock_call)
    def call_function(self: Any, name: bytes, tensor_inputs: Any, num_outputs: int) -> Any:
        if current.own:
            # The manager with which a coordinator cancels closures is one for all threads: an own call that fails must not
            # cancel theirs.
            attrs = tuple(itertools.chain(*self.function_call_options.as_attrs().items()))
            return execute.execute(name.decode(), num_outputs, tensor_inputs, attrs, self) or None
        setting = _by_function.get(name) if _by_function else None
        if setting is None:
            setting = current.scopes[-1] if current.scopes else _process
        if setting is None and not outstanding.tasks:
            return stock_call(self, name, tensor_inputs, num_outputs)
        crosses = setting is not None and setting.crosses
        if crosses or outstanding.tasks:
            outstanding.before_call(self, tensor_inputs, setting.client if setting is not None and crosses else None)
        current.call = setting
        try:
            return stock_call(self, name, tensor_inputs, num_outputs)
        finally:
            current.call = None

    @functools.wraps(stock_attrs)
    def as_attrs(self: Any) -> dict[str, Any]:
        attrs: dict[str, Any] = stock_attrs(self)
        if current.call is not None:
            attrs["config_proto"] = current.call.apply(attrs["config_proto"])
        return attrs

    context_lib.Context.call_function = call_function
    context_lib.FunctionCallOptions.as_attrs = as_attrs


def _wrap() -> None:
    with _LOCK:
        _wrap_once()
