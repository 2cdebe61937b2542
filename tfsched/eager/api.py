"""Switches scheduling on and off: for the process, for a block, for one function."""

from __future__ import annotations

import dataclasses
import logging
import types
import uuid
import weakref
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as context_lib
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from tfsched._log import say_once
from tfsched._options import Options
from tfsched.control import about, environment
from tfsched.eager import calls, confirming, joining, outstanding
from tfsched.eager.config import Setting
from tfsched.errors import TfschedError
from tfsched.grappler import summary
from tfsched.server import PROTOCOL

# All that this process trains is one training, whatever options it uses: its functions see each other's updates.
_CLIENT: list[str] = []


def enable(options: Options | None = None) -> None:
    """Has every tf.function that this process calls from now on scheduled, on whichever thread, in place of earlier options.

    May be called before or after TensorFlow has been used, and again with other options.

    Args:
      options: what to do; None means ``Options()``.

    Raises:
      TfschedError: ``options`` is of another type.
      ValueError: the plan cannot be read.
    """
    checked = _checked(options, "enable")
    setting = _setting(checked)
    _say_what_stays_stock()
    calls.set_process(setting)
    say_once(f"scheduling is on: {checked.describe()}.", logging.INFO)
    summary.at_exit()
    about.tell("functions", _told)
    about.tell_tasks(_own_task)
    environment.begin()


def disable() -> None:
    """Undoes :func:`enable`: waits for updates in the background, then functions run as in stock TensorFlow.

    Raises:
      TfschedError: updates were still outstanding after 30 s.
      tf.errors.OpError: an update failed; with the update's own code.
    """
    calls.set_process(None)
    outstanding.drain_all()


class options:
    """Within the block, functions that this thread calls run with these options. Blocks nest.

    Args:
      options: what to do; None means what is in force around the block, or ``Options()``.
      fields: fields of Options that replace those of ``options``.

    Raises:
      TfschedError: ``options`` is of another type, or a field is unknown or has a wrong value.
      ValueError: the plan cannot be read.
    """

    def __init__(self, options: Options | None = None, /, **fields: Any):
        self._setting = _setting(_replaced(options, fields))
        self._scopes: list[Any] = []

    def __enter__(self) -> None:
        scope = calls.scope(self._setting)
        scope.__enter__()
        self._scopes.append(scope)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._scopes.pop().__exit__(kind, error, trace)


def function(func: Any = None, *, options: Options | None = None, **tf_function_args: Any) -> Any:
    """A ``tf.function`` that runs with these options wherever it is called; also when given to ``coordinator.schedule``.

    Args:
      func: the Python function; None makes a decorator.
      options: what to do; None means ``Options()``.
      tf_function_args: for ``tf.function``.

    Returns:
      A ``tf.function``.

    Raises:
      TfschedError: ``options`` is of another type.
      ValueError: the plan cannot be read.
    """
    setting = _setting(_checked(options, "function"))

    def decorate(inner: Any) -> Any:
        made = tf.function(inner, **tf_function_args)
        # tf.function has no hook for a class of one's own; ours adds methods only.
        made.__class__ = ScheduledFunction
        made.tfsched_setting = setting
        return made

    return decorate if func is None else decorate(func)


class ScheduledFunction(polymorphic_function.Function):
    """What :func:`function` makes: a tf.function with options of its own."""

    tfsched_setting: Setting

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As of any tf.function."""
        with calls.scope(self.tfsched_setting):
            return super().__call__(*args, **kwargs)

    def _get_concrete_function_garbage_collected(self, *args: Any, **kwargs: Any) -> Any:
        # A coordinator calls the concrete function, on a thread of its own.
        made = super()._get_concrete_function_garbage_collected(*args, **kwargs)
        calls.remember(made.name, self.tfsched_setting)
        weakref.finalize(made, calls.forget, made.name)
        return made

    def _clone(self, python_function: Any) -> Any:
        return self._with_setting(super()._clone(python_function))

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self._with_setting(super().__get__(instance, owner))

    def _with_setting(self, made: Any) -> Any:
        made.__class__ = ScheduledFunction
        made.tfsched_setting = self.tfsched_setting
        return made


def _setting(options: Options) -> Setting:
    if not _CLIENT:
        _CLIENT.append(uuid.uuid4().hex)
    setting = Setting(options, _CLIENT[0])
    joining.watch()
    if setting.crosses:
        outstanding.watch()
        confirming.confirm_closures()
    return setting


def _checked(options: Any, name: str) -> Options:
    if options is None:
        return Options()
    if not isinstance(options, Options):
        raise TfschedError(f"{name} got {options!r} as options; give a tfsched.Options.")
    return options


def _replaced(given: Any, fields: dict[str, Any]) -> Options:
    around = calls.in_force()
    base = around.options if given is None and around is not None else _checked(given, "options")
    known = [field.name for field in dataclasses.fields(Options)]
    for name in fields:
        if name not in known:
            raise TfschedError(f"{name!r} is not an option of tfsched; the options are {', '.join(known)}.")
    return dataclasses.replace(base, **fields)


def _server_def() -> Any:
    """Of the cluster that this process has joined; None without."""
    return context_lib.get_server_def() or context_lib.context()._collective_ops_server_def


def _own_task() -> list[str]:
    server_def = _server_def()
    return [] if server_def is None else [f"/job:{server_def.job_name}/task:{server_def.task_index}"]


def _told() -> dict[str, Any]:
    """What holds in this process, for whoever asks; {} where scheduling is off. Called on a thread without scopes."""
    setting = calls.in_force()
    return {} if setting is None else dataclasses.asdict(setting.options.settled())


def _say_what_stays_stock() -> None:
    """A cluster that this process has joined keeps the protocol that it was joined with."""
    server_def = _server_def()
    if server_def is not None and server_def.protocol != PROTOCOL:
        say_once(
            f"this process has joined its cluster over {server_def.protocol!r}, so what it sends itself stays unordered; "
            f"give the cluster resolver rpc_layer={PROTOCOL!r}, or use tfsched.cluster_resolver."
        )
