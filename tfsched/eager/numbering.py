"""Numbers the background functions that a coordinator's closures launch, alike at every attempt at a closure.

A closure that is run again may have been applied in part by the worker that was lost, or still be, if that worker was only
cut off. So its background function bears the same number at every attempt, and parameter servers make each update of a
number once (cc/barrier/applied_updates.h). To say the number with every call would cost a message. Instead worker and
coordinator agree on an epoch, and both count.

    coordinator   begin epoch 7        step   step   step      begin epoch 9, first (7, 2) again    step   step
    worker                             (7, 0) (7, 1) (7, 2)x   another worker:                      (7, 2) (9, 0)

They agree anew when it is not certain any more that both count the same: after an error, or a call of a function of which it
is not known yet whether it has a background function. Where others call functions on a worker, nobody can count.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Hashable
from typing import Any

import tensorflow as tf

from tfsched._log import log
from tfsched.grappler.reading.clients import client_of_worker
from tfsched.ops import library

# Closures of one worker that may be unconfirmed within an epoch: half of what parameter servers remember of one.
_UNCONFIRMED = 16
_RANDOM = random.SystemRandom()


class Numbering:
    """What one worker and this process have agreed on. Thread safe.

    A closure bears its number, (epoch, index), as an attribute. One without is applied at least once.

    Args:
      task: the worker, "/job:worker/replica:0/task:3".
    """

    def __init__(self, task: str):
        self._task = task
        self._lock = threading.Lock()
        self._agreed = False
        self._client = ""
        self._epoch, self._index = 0, 0
        self._launched = 0  # in the epoch, as far as is known
        self._launches: dict[Hashable, bool] = {}  # function -> whether it has a background function
        self._doubtful: Hashable = None  # the function of the last call, if it is not among these
        self._closure: Any = None  # that runs
        self._shared = False  # others than closures call functions there

    def before_call(self, closure: Any, function: Hashable, client: str, unconfirmed: int) -> None:
        """The closure is about to call its function, with barrier=False, on the worker.

        Args:
          closure: the coordinator's; has one call.
          function: what decides whether the call launches a background function.
          client: for whom the worker trains.
          unconfirmed: how many closures of the worker have returned and may have updates under way.

        Raises:
          tf.errors.OpError: the worker cannot be reached.
        """
        with self._lock:
            self._closure = closure
            if self._shared or self._launches.get(function) is False:
                return
            again = closure.__dict__.get("_tfsched_number")  # of an earlier attempt
            if not self._agreed or client != self._client or unconfirmed > _UNCONFIRMED or again is not None:
                self._agree(again, client)
            if again is None:
                closure._tfsched_number = (self._epoch, self._index)
                self._index += 1
            if self._launches.get(function):
                self._launched += 1
            else:
                self._agreed, self._doubtful = False, function

    def after_call(self) -> None:
        """The closure's call has ended."""
        with self._lock:
            self._closure = None

    def lose_count(self) -> None:
        """A call has failed, so what it has launched is not known; or nothing more shall be numbered in this epoch."""
        with self._lock:
            self._agreed, self._doubtful = False, None

    def lost(self) -> None:
        """The worker is lost."""
        with self._lock:
            self._agreed, self._doubtful = False, None
            self._launches.clear()

    def share(self) -> None:
        """A function is called on the worker, and not by a closure: who launches what when is not known any more."""
        with self._lock:
            if not self._shared:
                log.warning(
                    "functions are called on %s beside the coordinator's closures; should it be lost, updates of a "
                    "closure that is run again may be applied twice.",
                    self._task,
                )
            self._shared = True
            if self._closure is not None:
                self._closure._tfsched_number = None

    def _agree(self, again: tuple[int, int] | None, client: str) -> None:
        self._agreed = False
        self._epoch, self._index = _RANDOM.randrange(1, 2**62), 0
        numbers = [self._epoch, *(again or ())]
        with tf.device(f"{self._task}/device:CPU:0"):
            numbered = library.load().tfsched_number_runs(numbers=numbers, client=client_of_worker(client, self._task))
        if self._doubtful is not None:
            launched = int(numbered.numpy()) - self._launched
            if launched in (0, 1):
                self._launches[self._doubtful] = launched == 1
        self._agreed, self._client, self._launched, self._doubtful = True, client, 0, None


_LOCK = threading.Lock()
_BY_TASK: dict[str, Numbering] = {}


def numbering_of(task: str) -> Numbering:
    """The one of this process with that worker."""
    with _LOCK:
        return _BY_TASK.setdefault(task, Numbering(task))


def forget(task: str) -> None:
    """The task is no longer of this process's cluster, or another process: nothing is agreed with it."""
    with _LOCK:
        _BY_TASK.pop(task, None)


def called_besides(task: str, own_thread: bool) -> None:
    """A function with barrier=False is called on a task, and not by a closure of that task.

    Args:
      task: any; nothing happens if it has run no closure.
      own_thread: the thread that runs the task's closures calls it.
    """
    found = _BY_TASK.get(task)
    if found is not None:
        (found.lose_count if own_thread else found.share)()
