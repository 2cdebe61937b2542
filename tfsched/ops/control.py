"""Reads the scheduler's counters and transfer trace, of this process or of any task of a cluster."""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable
from typing import Any

from tfsched.errors import TfschedError
from tfsched.ops import library

_STATS, _TRACE = 0, 1
_NEXT_ROW = ",\n"  # cc/transport/runtime.cc; within a text a line's end is escaped
_READ_TIMEOUT_MS = 30_000


def stats(session: Any = None, task: str | None = None) -> dict[str, Any]:
    """The scheduler's counters.

    Args:
      session: a session of a cluster, or its target ("grpc://host:port"); None is the cluster that this process has joined
        with TensorFlow 2 (a ParameterServerStrategy's).
      task: which task of the cluster, "/job:ps/task:0"; neither of both reads this process.

    Returns:
      ``tasks`` and ``bytes`` (ordered transfers handed to gRPC), ``bypassed_tasks`` and ``bypassed_bytes`` (untagged ones),
      ``queue_depth``, ``max_queue_depth``, ``on_wire_bytes``, ``reorderings`` (tasks that overtook an earlier one), ``late``
      (tasks that came after a higher rank, under policies that wait), ``step_asides`` (missing ranks given up), ``dropped``
      (queued when their step ended), ``groups`` ((step, receiver) pairs with state), ``sending_us_total`` (time in which a
      link had ordered transfers on the wire, added up over links), ``wire_byte_seconds`` (bytes on the wire times seconds,
      likewise), ``credit_in_force_bytes`` (of the link that was used last; 0: no limit, -1: none was used), ``steps`` (that
      the process took part in and that have ended), ``step_us_total`` (how long they took), ``servers``, ``emulated``,
      ``capability`` (what tells the task's tfsched from others); and what :func:`tfsched.configure` has set: ``policy``
      ("graph": each graph's own), ``credit_bytes`` (-1: each graph's own), ``rate_bps`` (0: no cap).

      Of updates that cross the step's barrier, in the task that starts them: ``crossing_variables`` (of the last training
      graph that was prepared there), ``background_calls``, ``background_done``,
      ``background_failed`` (by themselves, not with their step), ``background_outstanding``; on parameter servers: ``waits``
      (of reads for updates), ``waits_blocked`` (those that found an update outstanding), ``wait_us_total``, ``expectations``
      (updates outstanding), ``sent_ahead`` (updated values sent before the next step asked for them), ``sent_ahead_used``
      and ``sent_ahead_missed`` (of these, asked for unchanged, and changed before), ``sent_ahead_behind`` (used although
      other workers' updates had changed it, under asynchronous training), ``updates_by_chunks`` (made as their
      gradients arrived), ``updates_whole_after_all`` (begun like that, but somebody else had written to the variable),
      ``updates_in_chunks`` (under way), ``beyond_stock_bytes`` (held that stock TensorFlow would not hold),
      ``most_beyond_stock_bytes`` (the most of it that was reserved at a time), ``beyond_stock_limit_bytes`` (what it is kept
      below), ``refused_for_memory`` (updates by chunks, and values to be sent ahead, that were done without for that limit),
      ``updates_made_before`` (left out, for another worker's attempt at the same closure
      had made them), ``updates_kept`` (remembered for that); in both ``mailboxes`` (in use).

      Of all-reduces, in each worker: ``packs_scheduled`` (stock all-reduces that were exchanged tensor by tensor),
      ``packs_stock`` (that were left to stock TensorFlow, because workers differ), ``all_reduces`` (tensors exchanged),
      ``all_reduces_failed``, ``calls_remembered`` (stock all-reduces of which it is known what workers said; at most 1024 a
      group) and ``calls_awaited`` (questions of other workers that wait for an answer).

      In tasks that receive transfers in chunks: ``merges_in_place`` (tensors whose chunks were received side by side) and
      ``merges_copied`` (whose chunks had to be copied, as in the first step).

    Raises:
      TfschedError: session without task, or a task that the cluster does not have or that has no tfsched.
    """
    return dict(json.loads(_read(_STATS, session, task, clear=False)))


def transfers(
    session: Any = None, task: str | None = None, clear: bool = False, last: int | None = None
) -> list[dict[str, Any]]:
    """The last transfers that left this process or ``task``, oldest first.

    Args:
      session: as in :func:`stats`.
      task: as in :func:`stats`.
      clear: forget them after reading.
      last: give at most so many, the newest ones; None for all.

    Returns:
      One dict a transfer: ``name``, ``from``, ``to``, ``step_id``, ``bytes``, ``rank`` (-1: not ordered), and the times
      ``requested_us``, ``ready_us``, ``started_us``, ``released_us`` (Unix time in microseconds, -1: not yet), ``dropped``.

    Raises:
      TfschedError: as :func:`stats`; ``last`` is not above 0.
    """
    if last is not None and last < 1:
        raise TfschedError(f"last is {last!r}; give how many transfers you want, 1 or more, or None for all.")
    text = _read(_TRACE, session, task, clear)
    if last is not None:  # a line each: what is not wanted need not be parsed
        text = f"[{','.join(text[1:-1].rsplit(_NEXT_ROW, last)[-last:])}]"
    return list(json.loads(text))


def under_way() -> list[dict[str, Any]]:
    """Those of :func:`transfers` of this process that are on their way: started, not released. A fraction of its cost."""
    rows = _read(_TRACE, None, None, clear=False)[1:-1].split(_NEXT_ROW)
    # Of a name's quotes each is escaped, so that this stands in no name.
    found = [json.loads(row) for row in rows if '"released_us":-1,' in row]
    return [row for row in found if row["started_us"] >= 0]


def _read(what: int, session: Any, task: str | None, clear: bool) -> str:
    if task is None and isinstance(session, str) and session.startswith("/job:"):
        session, task = None, session
    if session is not None and task is None:
        raise TfschedError(
            f"session is {session!r} and task is None; "
            "give both to read a task of the session's cluster, or neither to read this process."
        )
    if task is None:
        return _read_local(what, clear)
    return _read_joined(what, task, clear) if session is None else _read_remote(what, session, task, clear)


def _read_local(what: int, clear: bool) -> str:
    api = library.c_api()
    texts: list[bytes] = []
    take = library.TAKE(lambda data, size, context: texts.append(ctypes.string_at(data, size)))
    api.tfsched_read(what, take, None)
    if clear and what == _TRACE:
        api.tfsched_clear_trace()
    return texts[0].decode()


def target_of(session: Any) -> str:
    """The master behind ``session``: a Session, a MonitoredSession, or the target itself."""
    if isinstance(session, str):
        return session
    inner = session._tf_sess() if hasattr(session, "_tf_sess") else session
    return inner.sess_str.decode()


def _read_joined(what: int, task: str, clear: bool) -> str:
    """Reads a task of the cluster that this process's eager context has joined."""
    return ask_joined(task, lambda ops: ops.tfsched_stats() if what == _STATS else ops.tfsched_trace(clear=clear))


def ask_joined(task: str, ask: Callable[[Any], Any]) -> str:
    """What an op answers on a task of the cluster that this process's eager context has joined.

    Args:
      task: "/job:ps/replica:0/task:0".
      ask: makes the op, whose output is a text, of tfsched's ops.

    Raises:
      TfschedError: the task does not answer.
    """
    import tensorflow as tf

    ops = library.load()
    answers: list[Any] = []

    def read() -> None:
        try:
            with tf.device(f"{task}/device:CPU:0"):
                answer = ask(ops)
            answers.append(answer.numpy().decode())
        except Exception as error:  # told by whoever waits
            answers.append(error)

    # An eager op has no time limit, and a task that is stopped never answers.
    thread = threading.Thread(target=read, name="tfsched-read", daemon=True)
    thread.start()
    thread.join(_READ_TIMEOUT_MS / 1000)
    answer = answers[0] if answers else f"no answer within {_READ_TIMEOUT_MS / 1000:g} s"
    if isinstance(answer, str) and answers:
        return answer
    raise TfschedError(
        f"The scheduler of task {task} cannot be read ({(str(answer).splitlines() or [''])[0]}); "
        "name a running task of the cluster that this process has joined, whose process imports tfsched."
    ) from None


def _read_remote(what: int, session: Any, task: str, clear: bool) -> str:
    import tensorflow as tf

    ops = library.load()
    # A graph and a session of its own: the user's graph may be finalized, and must not grow with every question.
    with tf.Graph().as_default() as graph, tf.device(task):
        if what == _STATS:
            answer = ops.tfsched_stats(name="tfsched/stats")
        else:
            answer = ops.tfsched_trace(clear=clear, name="tfsched/trace")
    # It sees no other task: one that is dead must not keep this one from being read.
    config = tf.compat.v1.ConfigProto(operation_timeout_in_ms=_READ_TIMEOUT_MS, device_filters=[task])
    try:
        with tf.compat.v1.Session(target_of(session), graph=graph, config=config) as control:
            return str(control.run(answer).decode())
    except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError, tf.errors.DeadlineExceededError) as error:
        raise TfschedError(
            f"The scheduler of task {task} cannot be read ({str(error).splitlines()[0]}); "
            "name a running task of the cluster whose process imports tfsched."
        ) from None
