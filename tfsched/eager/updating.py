"""Keeps calls on other tasks from beginning while TensorFlow learns that a task has been restarted.

A call copies its arguments to its task first. TensorFlow notes each copy under the number of the cluster's state that it
finds, sends the tensor, and notes it as arrived under the number that it finds then. If the cluster is updated between the
two, the copy never counts as arrived, and the call waits for it for ever: of a healthy worker, because another one died.
A coordinator updates the cluster while its other workers go on, so this happens, if rarely.

    worker A's thread      |- copy -|- step ------|          |- copy -|- step ------|          |- copy ...
    the cluster                                      wait, then update
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tfsched._log import log

_COPIED_S = 2.0  # a call that began so long ago has copied its arguments
_PATIENCE_S = 30.0  # an update that lasts longer is not waited for
_FIRST_LOOK_S, _LAST_LOOK_S = 0.1, 5.0  # between two looks for a task that is away
_MORE = 1.5
_AWAY_S = 3600.0  # how long a coordinator waits for a task


class Gate:
    """Who calls, and who updates the cluster."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._begun: dict[int, float] = {}  # thread -> since when it has been in a call
        self._updates = 0
        self._open_s = 0.0  # of time.monotonic(): when the update that is under way is not waited for any more
        self._told = False  # that calls begin although it is under way
        self.used = False  # whether there has been any call

    def begin(self) -> None:
        """A call on another task is about to begin. Waits while the cluster is updated, but not without end."""
        with self._changed:
            self.used = True
            while self._updates and (left_s := self._open_s - time.monotonic()) > 0:
                self._changed.wait(left_s)
            if self._updates and not self._told:
                self._told = True
                log.warning("the cluster is still being updated after %g s; calls begin all the same.", _PATIENCE_S)
            self._begun[threading.get_ident()] = time.monotonic()

    def end(self) -> None:
        """The call has ended, in whatever way."""
        with self._changed:
            self._begun.pop(threading.get_ident(), None)
            if self._updates:
                self._changed.notify_all()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Within it no call begins, and the arguments of those that have begun are where they have to be."""
        with self._changed:
            self._updates += 1
            self._open_s, self._told = time.monotonic() + _PATIENCE_S, False
            deadline_s = time.monotonic() + _COPIED_S
            while self._copying() and (left_s := deadline_s - time.monotonic()) > 0:
                self._changed.wait(left_s)
        try:
            yield
        finally:
            with self._changed:
                self._updates -= 1
                self._changed.notify_all()

    def _copying(self) -> bool:
        """Called with the lock held: whether a call may still copy its arguments."""
        since_s = time.monotonic() - _COPIED_S
        return any(begun_s > since_s for begun_s in self._begun.values())


gate = Gate()


@contextmanager
def alone(context: Any, tasks: Collection[str]) -> Iterator[None]:
    """Within it the cluster can be updated: no call begins meanwhile.

    Waits until all tasks answer before, as TensorFlow's update would, for other workers go on until then.

    Args:
      context: the eager context.
      tasks: the others of the new cluster.
    """
    if not gate.used or not _await(context, tasks):
        yield
        return
    with gate.closed():
        yield


def _await(context: Any, tasks: Collection[str]) -> bool:
    """Waits until every task answers; False if one stays away, or cannot be asked, for this process does not know it yet."""
    pause_s = _FIRST_LOOK_S
    away = list(tasks)
    deadline_s = time.monotonic() + _AWAY_S
    while time.monotonic() < deadline_s:
        try:
            away = [task for task in away if not context.check_alive(task)]
        except (tf.errors.OpError, ValueError):
            return False
        if not away:
            return True
        time.sleep(pause_s)
        pause_s = min(pause_s * _MORE, _LAST_LOOK_S)
    return False
