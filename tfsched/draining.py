"""Waits for updates in the background: on demand, and as a hook at a session's end and before a checkpoint."""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf

from tfsched.eager import outstanding
from tfsched.errors import TfschedError
from tfsched.grappler.barrier.closing import DRAINER, crosses

DEFAULT_TIMEOUT_S = 30.0
_FETCH = "tfsched/drained:0"


def drain(session: Any = None, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
    """Waits until every update that the session's finished steps have caused is applied.

    Returns at once where nothing is outstanding, or where the session does not cross the barrier.

    Args:
      session: a tf.compat.v1.Session or a MonitoredSession; None waits for what this process's tf.functions have caused, on
        every worker.
      timeout_s: how long to wait at most, in seconds.

    Raises:
      TfschedError: the time is over, or ``timeout_s`` is no positive number.
      tf.errors.OpError: an update failed; with the update's own code.
    """
    if not isinstance(timeout_s, (int, float)) or not timeout_s > 0:
        raise TfschedError(f"drain got a timeout of {timeout_s!r} s; give a number of seconds above 0.")
    if session is None:
        outstanding.drain_all(timeout_s)
        return
    inner = session._tf_sess() if hasattr(session, "_tf_sess") else session
    if not crosses(inner._config):
        return
    begin_s = time.monotonic()
    try:
        drainer = _drainer(inner, timeout_s)
        # The fetch stands for "nothing": the pass puts the wait in front of it, where the updates run.
        left_s = max(0.001, timeout_s - (time.monotonic() - begin_s))
        drainer.run(_FETCH, options=tf.compat.v1.RunOptions(timeout_in_ms=max(1, int(left_s * 1000))))
    except tf.errors.DeadlineExceededError as error:
        if not outstanding.is_late(error):
            raise
        raise TfschedError(
            f"Updates were still outstanding after {timeout_s:g} s; is a parameter server gone, or the network slow? "
            "Give drain a longer timeout_s."
        ) from None


def _drainer(session: Any, timeout_s: float) -> Any:
    """The session that drains the user's: its graph may be finalized, and must not grow with every call."""
    drainer = getattr(session, DRAINER, None)
    if drainer is None:
        with tf.Graph().as_default() as graph:
            tf.constant(0, name=_FETCH.partition(":")[0])
        config = tf.compat.v1.ConfigProto()
        config.CopyFrom(session._config)
        config.operation_timeout_in_ms = max(1, int(timeout_s * 1000))  # for what comes before the run
        drainer = tf.compat.v1.Session(session.sess_str, graph=graph, config=config)
        setattr(session, DRAINER, drainer)
    return drainer


class DrainHook(tf.compat.v1.train.SessionRunHook, tf.compat.v1.train.CheckpointSaverListener):
    """Drains at the end of a MonitoredSession; as a listener of a CheckpointSaverHook also before every checkpoint.

    A checkpoint holds the last finished step's values without it, for a saver's own graph waits too. With it the wait has a
    time limit and an error of its own.

    Args:
      timeout_s: how long to wait at most, in seconds.
    """

    def __init__(self, timeout_s: float = DEFAULT_TIMEOUT_S):
        self._timeout_s = timeout_s

    def end(self, session: Any, global_step_value: Any = None) -> None:
        """Called by a MonitoredSession before it closes, and by a CheckpointSaverHook behind its last checkpoint."""
        drain(session, self._timeout_s)

    def before_save(self, session: Any, global_step_value: Any) -> None:
        """Called by a CheckpointSaverHook."""
        drain(session, self._timeout_s)
