"""Changes running schedulers, of this process or of every task of a cluster, without touching a graph."""

from __future__ import annotations

import ctypes
import dataclasses
import getpass
import json
import math
import numbers
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from tfsched.errors import TfschedError
from tfsched.ops import library
from tfsched.ops.control import ask_joined, target_of
from tfsched.ops.limits import Tell, ask_all

GRAPH = "graph"
_GRAPH_CREDIT = -1
_KEEP_POLICY, _KEEP_CREDIT, _KEEP_RATE = "", -2, -1  # cc/ops/control/control_op.cc
_SMALLEST_REMOTE_BPS = 10**6  # cc/ops/control/control_kernel.cc
_LARGEST = 10**15  # a petabyte, or a petabit a second
_POLICIES = 2
_LIMIT_S = 30.0


@dataclasses.dataclass(frozen=True)
class Configured:
    """Whom a call of :func:`configure` reached.

    Attributes:
      reached: the tasks that are changed, "/job:ps/replica:0/task:0"; "this process" if no session was given.
      skipped: task -> why it is as it was before, in one sentence.
    """

    reached: tuple[str, ...]
    skipped: dict[str, str] = dataclasses.field(default_factory=dict)


def configure(
    session_or_target: Any = None,
    *,
    policy: str | None = None,
    credit_bytes: int | None = None,
    rate_bps: float | None = None,
    task: str | None = None,
    timeout_s: float = _LIMIT_S,
) -> Configured:
    """Changes the running scheduler of each task of a cluster, for all ordered transfers, from the next one on.

    What is set here wins over what the graphs carry (:class:`tfsched.Options`), in every graph, until it is given back. What
    is queued moves over to the new policy in the order in which it came; what is on the wire counts against the new credit.
    None leaves a value as it is. No value that a step computes depends on any of them.

    Args:
      session_or_target: a session of the cluster, or its target ("grpc://host:port"); None changes this process. A session's
        device filters hold here too.
      policy: one of ``tfsched.Options``' policies, or "graph" to go back to the graphs' own.
      credit_bytes: bytes that may be handed to gRPC and not yet be written, 0 for no limit; -1 to go back to the graphs'
        own.
      rate_bps: what a task hands over to one receiver, in bits per second, averaged over a few milliseconds; 0 for no cap.
        Transfers without a rank are neither held back nor counted. Other processes take no cap below 1 Mbit/s.
      task: only this task, "/job:ps/task:0".
      timeout_s: how long the whole call may take, in seconds, however many tasks do not answer.

    Returns:
      Which tasks were reached. Tasks whose process does not know tfsched, or does not answer within ``timeout_s``, are
      skipped and named; one that is only slow may still be changed later. :func:`tfsched.stats` shows what is in force.

    Raises:
      TfschedError: a value that is not one of the above, or no task was reached.
    """
    library.load()
    wanted = (_check_policy(policy), _check_credit(credit_bytes), _check_rate(rate_bps))
    _check_timeout(timeout_s)
    if session_or_target is None:
        if task is not None:
            raise TfschedError(f"task is {task!r} but no session was given; give a session of its cluster, or its target.")
        library.c_api().tfsched_configure(wanted[0].encode(), *wanted[1:])
        return Configured(("this process",))
    if 0 < wanted[2] < _SMALLEST_REMOTE_BPS:
        raise TfschedError(
            f"rate_bps is {rate_bps}, which would all but stop the cluster; "
            f"give {_SMALLEST_REMOTE_BPS} or more, or 0 (no cap)."
        )
    deadline_s = time.monotonic() + timeout_s
    target = target_of(session_or_target)
    tasks = [task] if task is not None else tasks_of(session_or_target, timeout_s)
    answers = ask_all({name: _asking(target, name, *wanted, deadline_s) for name in tasks}, deadline_s)
    skipped = {name: reason for name in tasks if (reason := _reason(answers.get(name), timeout_s))}
    if len(skipped) == len(tasks):
        raise TfschedError(
            f"No task was configured ({'; '.join(f'{name}: {reason}' for name, reason in skipped.items())}); "
            "name a running cluster whose tasks import tfsched."
        )
    return Configured(tuple(name for name in tasks if name not in skipped), skipped)


def _check_policy(policy: str | None) -> str:
    if policy is None:
        return _KEEP_POLICY
    names: list[bytes] = []
    take = library.TAKE(lambda data, size, context: names.append(ctypes.string_at(data, size)))
    library.c_api().tfsched_read(_POLICIES, take, None)
    known = [*json.loads(names[0]), GRAPH]
    if policy not in known:
        raise TfschedError(f"policy is {policy!r}; choose one of {', '.join(known)}.")
    return policy


def _check_credit(credit_bytes: Any) -> int:
    if credit_bytes is None:
        return _KEEP_CREDIT
    is_whole = isinstance(credit_bytes, numbers.Integral) and not isinstance(credit_bytes, bool)
    if not is_whole:
        raise TfschedError(f"credit_bytes is {credit_bytes!r}; give a whole number of bytes.")
    if not _GRAPH_CREDIT <= credit_bytes <= _LARGEST:
        raise TfschedError(
            f"credit_bytes is {credit_bytes}; give a number up to {_LARGEST}, 0 (no limit), or -1 (the graphs' own)."
        )
    return int(credit_bytes)


def _check_rate(rate_bps: Any) -> int:
    if rate_bps is None:
        return _KEEP_RATE
    is_number = isinstance(rate_bps, numbers.Real) and not isinstance(rate_bps, bool)
    if not is_number or not math.isfinite(rate_bps):
        raise TfschedError(f"rate_bps is {rate_bps!r}; give a number of bits per second.")
    if rate_bps != 0 and not 1 <= rate_bps <= _LARGEST:
        raise TfschedError(f"rate_bps is {rate_bps}; give a number from 1 to {_LARGEST}, or 0 (no cap).")
    return round(rate_bps)


def _check_timeout(timeout_s: Any) -> None:
    is_number = isinstance(timeout_s, numbers.Real) and not isinstance(timeout_s, bool)
    if not is_number or not 0 < timeout_s < math.inf:
        raise TfschedError(f"timeout_s is {timeout_s!r}; give a number of seconds above 0.")


def tasks_of(session: Any, timeout_s: float = _LIMIT_S) -> list[str]:
    """The tasks that the devices of a session, or of a target's sessions, are on: "/job:ps/replica:0/task:0".

    Raises:
      TfschedError: they cannot be listed within ``timeout_s``.
    """
    import tensorflow as tf

    target = target_of(session)
    deadline_s = time.monotonic() + timeout_s

    def ask(tell: Tell) -> None:
        if isinstance(session, str):
            with tf.compat.v1.Session(target, graph=tf.Graph(), config=_config(deadline_s)) as control:
                tell(control.list_devices())
        else:
            inner = session._tf_sess() if hasattr(session, "_tf_sess") else session
            tell(inner.list_devices())

    devices = ask_all({target: ask}, deadline_s).get(target)
    if devices is None or isinstance(devices, tf.errors.DeadlineExceededError):
        # The target waits for all tasks of its cluster, and does not tell us for which one.
        raise TfschedError(
            f"The devices of {target} cannot be listed within {timeout_s:g} s, for this task or another one of its cluster "
            "does not answer; start the cluster's tasks, or name one that runs by task=."
        )
    if isinstance(devices, tf.errors.OpError):
        raise TfschedError(
            f"The devices of {target} cannot be listed ({_first_line(devices)}); "
            "start the cluster's tasks, or name one by task=."
        )
    if isinstance(devices, Exception):
        raise devices
    names = (tf.DeviceSpec.from_string(device.name) for device in devices)
    return sorted({f"/job:{name.job}/replica:{name.replica}/task:{name.task}" for name in names})


def _config(deadline_s: float, filters: tuple[str, ...] = ()) -> Any:
    """Of a session each of whose calls ends by then, so that no thread is left for long."""
    import tensorflow as tf

    left_ms = max(1, round(1000 * (deadline_s - time.monotonic())))
    config = tf.compat.v1.ConfigProto(operation_timeout_in_ms=left_ms, device_filters=filters)
    # Of a master in this process the limit would not hold, and Python's lock is held while devices are listed.
    config.rpc_options.use_rpc_for_inprocess_master = True
    return config


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _asker() -> str:
    """Who this process is, for the logs of the tasks that it changes: they cannot find out."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()} process {os.getpid()} ({os.path.basename(sys.argv[0] or 'python')})"


def configure_joined(task: str, policy: str, credit_bytes: int) -> None:
    """Changes a task of the cluster that this process's eager context has joined; its rate stays.

    Raises:
      TfschedError: a value that :func:`configure` does not take, or the task does not answer.
    """
    values = {"policy": _check_policy(policy), "credit_bytes": _check_credit(credit_bytes), "rate_bps": _KEEP_RATE}
    ask_joined(task, lambda ops: ops.tfsched_configure(**values, asker=_asker()))


def set_piece_bytes(piece_bytes: int) -> None:
    """Has all members of this process's all-reduces cut tensors into pieces of at most so many bytes, from the next call on.

    Only one of them may ask; its part in what the members agree on before each all-reduce tells the others. 0 leaves it to
    the graphs.
    """
    library.c_api().tfsched_set_piece_bytes(piece_bytes)


def _asking(
    target: str, task: str, policy: str, credit_bytes: int, rate_bps: int, deadline_s: float
) -> Callable[[Tell], None]:
    """What runs the op on ``task`` and tells True."""

    def ask(tell: Tell) -> None:
        import tensorflow as tf

        ops = library.load()
        # A session for each, which sees no other task: one that is dead must not keep the others from being reached.
        with tf.Graph().as_default() as graph, tf.device(task):
            values = {"policy": policy, "credit_bytes": credit_bytes, "rate_bps": rate_bps}
            answer = ops.tfsched_configure(**values, asker=_asker(), name="tfsched/configure")
        with tf.compat.v1.Session(target, graph=graph, config=_config(deadline_s, (task,))) as control:
            control.run(answer)
            tell(True)

    return ask


def _reason(answer: Any, timeout_s: float) -> str:
    """Why a task that has answered this, or with None not at all, was not changed; "" if it was."""
    import tensorflow as tf

    if answer is None or isinstance(answer, tf.errors.DeadlineExceededError):
        return f"it did not answer within {timeout_s:g} s"
    if isinstance(answer, tf.errors.NotFoundError) and "TfschedConfigure" in str(answer):
        return "its process, or the master's, does not import tfsched"
    if isinstance(answer, tf.errors.OpError):
        return _first_line(answer)
    if isinstance(answer, Exception):
        raise answer
    return ""
