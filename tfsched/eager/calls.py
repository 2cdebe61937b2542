"""Gives each eager call of a tf.function the options that are in force for it: a wrap, made when first used.

TensorFlow sends a serialized ConfigProto along with every call; the worker's Grappler reads it, and another config is
another instantiation of the function. It is exchanged there, call by call, and not in the context or in a thread's cached
options: so threads that have cached theirs (a coordinator's, Keras') follow as well, what the user configures before or
later stays, and calls that are only traced into another function leave the traced graph as it is. A process that is
connected to no other makes its calls as stock TensorFlow does.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tensorflow.python.eager import cancellation, execute
from tensorflow.python.eager import context as context_lib

from tfsched.eager import outstanding, own_updates, python_lock
from tfsched.eager.config import Setting
from tfsched.eager.thread import blocks, current, looked_at
from tfsched.eager.updating import gate
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
    with looked_at():
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
    python_lock.release_the_lock()
    stock_call = context_lib.Context.call_function

    @functools.wraps(stock_call)
    def call_function(self: Any, name: bytes, tensor_inputs: Any, num_outputs: int) -> Any:
        # Every call of the process comes here, so what costs (a thread's attributes, another frame) comes last. Where there
        # is no other task nothing can be scheduled, and a longer config would only take time to be looked up by.
        if self._server_def is None and self._collective_ops_server_def is None and not outstanding.tasks:
            return stock_call(self, name, tensor_inputs, num_outputs)
        setting = _process
        if blocks.open:
            if current.own:
                # The manager with which a coordinator cancels closures is one for all threads: an own call that fails must
                # not cancel theirs.
                attrs = self.function_call_options.as_attrs()
                return execute.execute(name.decode(), num_outputs, tensor_inputs, _flat(attrs), self) or None
            if current.scopes:
                setting = current.scopes[-1]
        if _by_function:
            setting = _by_function.get(name, setting)
        if setting is None and not outstanding.tasks:
            return stock_call(self, name, tensor_inputs, num_outputs)
        # TensorFlow keeps it in one place for all threads, and whichever closure returns takes it away: read behind a wait,
        # during which other threads run, it would be missing, and the call could not be cancelled.
        manager = cancellation.context()
        if setting is not None and own_updates.refused and own_updates.is_member():
            setting = setting.with_barrier
        crosses = setting is not None and setting.crosses
        noted = seen = None
        if manager is not None and manager.is_cancelled:
            crosses = False  # the call ends before it begins: nobody has to be asked or told anything
        elif crosses or outstanding.tasks:
            client = setting.client if setting is not None and crosses else None
            noted = outstanding.before_call(self, tensor_inputs, client, (name, setting))
            seen = own_updates.before_call((name, setting)) if crosses else None
        # What stock_call does, with another config.
        elsewhere = outstanding.is_elsewhere(self)
        try:
            if elsewhere:
                gate.begin()
            python_lock.start()
            attrs = self.function_call_options.as_attrs()
            if setting is not None:
                attrs["config_proto"] = setting.made.get(attrs["config_proto"]) or setting.apply(attrs["config_proto"])
            if manager is None:
                outputs = execute.execute(name.decode(), num_outputs, tensor_inputs, _flat(attrs), self)
            else:
                arguments = (name.decode(), num_outputs, tensor_inputs, _flat(attrs), self, manager)
                outputs = execute.execute_with_cancellation(*arguments)
            if seen is not None and setting is not None:
                outstanding.after_own_call((name, setting), seen, setting.client)
        except BaseException:
            if crosses:
                outstanding.call_failed(self)
            raise
        finally:
            python_lock.started()
            if elsewhere:
                gate.end()
            if noted is not None:
                outstanding.after_call(noted)
        return outputs or None

    context_lib.Context.call_function = call_function


def _flat(attrs: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(itertools.chain(*attrs.items()))


def _wrap() -> None:
    with _LOCK:
        _wrap_once()
