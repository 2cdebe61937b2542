"""Switches tfsched on in TensorFlow itself: for servers, clusters that are joined, sessions and functions."""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import tensorflow_server_pb2
from tensorflow.python.client import session as session_lib
from tensorflow.python.eager import context as context_lib
from tensorflow.python.training import server_lib

from tfsched._log import say_once
from tfsched._options import Options

_STOCK = ("", "grpc")
# What to do to have stock TensorFlow again.
_UNDO: list[Callable[[], None]] = []


def apply() -> None:
    """Switches it on, with the options of the environment. What the program itself chooses in code wins.

    Raises:
      TfschedError: the native library is missing or does not fit, or an option has a wrong value.
      ValueError: the plan cannot be read.
      AttributeError: this TensorFlow is made in another way.
    """
    import tfsched

    tfsched.load()
    options = Options()
    _patch_servers()
    _patch_joining()
    _patch_sessions(options)
    _watch_datasets()
    tfsched.enable(options)


def undo() -> None:
    """Takes back what :func:`apply` has done before it failed."""
    while _UNDO:
        _UNDO.pop()()


def _wrap(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Puts ``make(stock)`` in the place of a method."""
    stock = getattr(owner, name)
    setattr(owner, name, functools.wraps(stock)(make(stock)))
    _UNDO.append(lambda: setattr(owner, name, stock))


def _patch_servers() -> None:
    """Every tf.distribute.Server over gRPC speaks tfsched's protocol."""
    from tfsched.control import about, environment
    from tfsched.server import PROTOCOL

    def make(stock: Any) -> Any:
        def __init__(
            self: Any,
            server_or_cluster_def: Any,
            job_name: Any = None,
            task_index: Any = None,
            protocol: Any = None,
            config: Any = None,
            start: bool = True,
        ) -> None:
            is_whole = isinstance(server_or_cluster_def, tensorflow_server_pb2.ServerDef)
            asked = protocol or (server_or_cluster_def.protocol if is_whole else "")
            scheduled = PROTOCOL if asked in _STOCK else protocol
            stock(self, server_or_cluster_def, job_name, task_index, scheduled, config, start)
            if asked in _STOCK:
                task = f"/job:{self.server_def.job_name}/task:{self.server_def.task_index}"
                about.tell_tasks(lambda: [task])
                environment.begin()

        return __init__

    _wrap(server_lib.Server, "__init__", make)


def _patch_joining() -> None:
    """A process that joins a cluster, as strategies do, speaks tfsched's protocol there, whatever its resolver says.

    Resolvers keep their rpc_layer: what they give as a session's master begins with it, and sessions know "grpc://" only.
    """
    from tfsched.server import PROTOCOL

    def make(stock: Any) -> Any:
        def joined(self: Any, server_def: Any, *args: Any, **kwargs: Any) -> Any:
            if server_def is not None and server_def.protocol in _STOCK:
                copy = tensorflow_server_pb2.ServerDef()
                copy.CopyFrom(server_def)
                copy.protocol = PROTOCOL
                server_def = copy
            return stock(self, server_def, *args, **kwargs)

        return joined

    for name in ("set_server_def", "update_server_def", "enable_collective_ops"):
        _wrap(context_lib.Context, name, make)


def _patch_sessions(options: Options) -> None:
    """Every session of a cluster has tfsched's optimizer in its config, unless the program has put one in."""
    from tfsched.grappler.config import is_switched_off, optimizers, session_config

    # What was given, serialized -> what was made of it. Sessions made from one config are one trainer.
    made: dict[bytes, Any] = {}

    def scheduled(config: Any) -> Any:
        base = tf.compat.v1.ConfigProto() if config is None else config
        if not isinstance(base, tf.compat.v1.ConfigProto) or optimizers(base):
            return config
        if is_switched_off(base):
            say_once("a session has disable_meta_optimizer set, which keeps tfsched's pass from running: it is unscheduled.")
            return config
        chosen = options
        if base.isolate_session_state and not options.barrier:
            say_once("a session has isolate_session_state set, so its steps keep the barrier.")
            chosen = dataclasses.replace(options, barrier=True)
        key = base.SerializeToString(deterministic=True)
        if key not in made:
            made[key] = session_config(chosen, base)
        return made[key]

    def make(stock: Any) -> Any:
        def __init__(self: Any, target: Any, graph: Any = None, config: Any = None) -> None:
            stock(self, target, graph, scheduled(config) if target else config)

        return __init__

    _wrap(session_lib.BaseSession, "__init__", make)


def _watch_datasets() -> None:
    from tfsched.eager import own_updates

    own_updates.watch()


def tell_of_serving(descriptor: int | None) -> None:
    """Has Server.join tell the launcher that this task only serves, and end with a summary when SIGTERM comes.

    Args:
      descriptor: an open pipe to the launcher; None without one.
    """

    launched = os.getpid()

    def make(stock: Any) -> Any:
        def join(self: Any) -> Any:
            if descriptor is not None and os.getpid() == launched:  # a forked child's serving is not the task's
                os.write(descriptor, b"serving\n")
            _end_with_summary_at_sigterm()
            return stock(self)

        return join

    stock = server_lib.Server.join
    server_lib.Server.join = functools.wraps(stock)(make(stock))


def _end_with_summary_at_sigterm() -> None:
    """Server.join never returns to Python, so Python's own handlers would never run. A program's handler stays."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda number, frame: None)

    def wait() -> None:
        while os.read(reading, 1) != bytes([signal.SIGTERM]):
            pass
        from tfsched.grappler import summary

        if _UNDO:
            summary.say()
        sys.stdout.flush()
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=wait, name="tfsched-end", daemon=True).start()
