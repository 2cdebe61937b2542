"""Puts settings in force on all tasks of a training: between two steps, or beside them where a task takes its time."""

from __future__ import annotations

from concurrent import futures

from tfsched.errors import TfschedError
from tfsched.online.reach import Reach
from tfsched.online.results import listed, say
from tfsched.tuning import Setting


class Switch:
    """Which setting a training runs with.

    Args:
      reach: its tasks.
      first: what is in force now; to go back to it gives every task what it had itself.
      cuts: whether a setting's pieces count.
      pool: where tasks are told.

    Attributes:
      in_force: the setting that was put in force last.
    """

    def __init__(self, reach: Reach, first: Setting, cuts: bool, pool: futures.ThreadPoolExecutor):
        self.in_force = first
        self._reach, self._first, self._cuts, self._pool = reach, first, cuts, pool
        self._under_way: futures.Future[dict[str, str]] | None = None

    def to(self, setting: Setting) -> None:
        """Begins to tell all tasks."""
        if setting == self._first:
            self._under_way = self._pool.submit(self._reach.restore)
        else:
            self._under_way = self._pool.submit(self._reach.apply, setting, self._cuts)
        self.in_force = setting

    def is_done(self, limit_s: float = 0.0) -> bool:
        """Whether all tasks have been told; waits for that, at most ``limit_s``.

        Raises:
          TfschedError: a task could not be reached.
        """
        if self._under_way is None:
            return True
        try:
            failed = self._under_way.result(limit_s)
        except futures.TimeoutError:
            return False
        self._under_way = None
        if failed:
            raise TfschedError(listed(failed))
        return True

    def leave(self) -> None:
        """Nobody will ask :meth:`is_done` any more; a failure goes to the log."""
        if self._under_way is not None:
            self._under_way.add_done_callback(lambda told: say_if_not(told.result()))

    def put_back(self) -> None:
        """Goes back to the first setting, and waits for that."""
        if self._under_way is not None:
            futures.wait([self._under_way])
        if self.in_force != self._first:
            self.in_force = self._first
            self._reach.restore()


def say_if_not(failed: dict[str, str]) -> None:
    """Says which tasks were not reached, if any."""
    if failed:
        say(f"what autotune has chosen is not in force everywhere: {listed(failed)}.")
