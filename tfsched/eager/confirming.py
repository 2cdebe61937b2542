"""Keeps a coordinator's closure unfinished until the updates that it left in the background are applied.

Stock TensorFlow runs a closure again, on any worker, if its worker is lost before the closure has returned. One that crosses
the barrier returns before its updates are applied, and they are lost with the worker. So the coordinator's queue hears that
it is finished when they are: `join()` and `done()` wait for that, and a worker that is lost gives back what it had not
confirmed together with what it was running. What was applied of those is not applied again (numbering.py).
docs/tensorflow2.md has the argument.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Hashable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.coordinator import cluster_coordinator

from tfsched._log import log
from tfsched.eager import capability, outstanding
from tfsched.eager.numbering import numbering_of
from tfsched.eager.thread import current

_DRAIN_S = 60.0
_LOOK_S = 5.0  # whether the coordinator has been stopped
_AGAIN_S = 0.2  # after a drain that could not be made
_UPDATE = "background update"  # in every error that an update causes (cc/barrier/calls.cc)
_EARLIER = "the background update of an earlier step failed"


class Running:
    """The closure that a worker's thread runs."""

    def __init__(self, confirmer: Confirmer, closure: Any):
        self.confirmer, self.closure = confirmer, closure
        self.client: str | None = None  # of a call with barrier=False that it made
        self.error: BaseException | None = None

    def before_call(self, function: Hashable, client: str) -> None:
        """It is about to call a function with barrier=False on its worker; see numbering.py."""
        self.client = client
        self.confirmer.numbering.before_call(self.closure, function, client, self.confirmer.unconfirmed)


class Confirmer:
    """What one worker has returned and not yet confirmed, and the thread that asks.

    Attributes:
      task: the worker's.
      numbering: what was agreed with the worker.
      given_back: how many closures were run again because nobody knew of their updates.
    """

    def __init__(self, worker: Any):
        self._cluster, self._worker = worker._cluster, worker
        self.task = worker.device_name
        self.numbering = numbering_of(self.task)
        self._condition = threading.Condition()
        self._waiting: list[Any] = []  # closures, oldest first
        self._doubtful: list[Any] = []  # of these, the ones whose error the next closure is told, if there is one
        self._failed: int | None = None  # updates that had failed in the worker when last asked
        self._client = ""
        self.given_back = 0
        self._running = False
        self._thread: threading.Thread | None = None
        _CONFIRMERS.add(self)

    @property
    def unconfirmed(self) -> int:
        """How many closures have returned and may have updates under way."""
        return len(self._waiting)

    def begin(self) -> None:
        """A closure begins on the worker."""
        with self._condition:
            self._running = True

    def returned(self, closure: Any, client: str) -> None:
        """A closure has returned, and may have updates under way."""
        with self._condition:
            self._client = client
            self._waiting.append(closure)
            if self._thread is None:
                self._thread = threading.Thread(target=self._confirm, name=f"tfsched-confirm-{self.task}", daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def end(self, error: BaseException | None) -> None:
        """The closure has ended; ``error`` is what it raised. Now it is clear whether it was told of an earlier update's."""
        self.numbering.after_call()
        with self._condition:
            self._running = False
            told = error is not None and _EARLIER in str(error)
            # An error is told once: to this closure, or to our own question.
            mine = list(self._waiting) if told else [one for one in self._doubtful if one in self._waiting]
            self._take(mine)
            self._condition.notify_all()
        for closure in mine:
            if told:
                self._fail(closure, error)
            else:
                self._cluster.closure_queue.mark_finished()

    def settle(self, deadline_s: float) -> bool:
        """Waits until all that has returned is confirmed, but for what the closure that runs will be told of.

        Args:
          deadline_s: of time.monotonic().

        Returns:
          False if the time was over before.
        """
        with self._condition:
            return self._condition.wait_for(lambda: not self._to_ask_for(), max(0.0, deadline_s - time.monotonic()))

    def lost(self) -> None:
        """The worker is lost: what was not confirmed goes back into the queue."""
        self.numbering.lost()
        capability.forget(self.task)
        with self._condition:
            mine = list(self._waiting)
            self._take(mine)
            self._failed = None
        for closure in mine:
            self._give_back(closure)

    def _take(self, closures: list[Any]) -> None:
        """Called with the lock held: from here on these are the caller's to end."""
        self._waiting = [one for one in self._waiting if one not in closures]
        self._doubtful = [one for one in self._doubtful if one not in closures]
        self._condition.notify_all()

    def _to_ask_for(self) -> list[Any]:
        """Called with the lock held: what has returned and waits for an answer."""
        return [one for one in self._waiting if one not in self._doubtful]

    def _confirm(self) -> None:
        drainer: tuple[str, outstanding.Drainer] | None = None
        while True:
            client = self._wait_for_work()
            if client is None:
                return
            if drainer is None or drainer[0] != client:
                drainer = (client, outstanding.Drainer(self.task, client, _DRAIN_S, returned=True))
            # In a frame of its own: while the thread has nothing to do it must not keep the closures that it asked for last,
            # nor what they were given and what holds that (iterators, their coordinator).
            self._ask(drainer[1])

    def _wait_for_work(self) -> str | None:
        """Waits until there are closures to ask for; their client, or None when the coordinator has been stopped."""
        with self._condition:
            while not self._to_ask_for():
                self._condition.wait(_LOOK_S)
                if not self._worker._should_worker_thread_run:
                    return None
            return self._client

    def _ask(self, drainer: outstanding.Drainer) -> None:
        """Waits for the updates of all that has returned so far."""
        with self._condition:
            asked = list(self._waiting)
        calls = outstanding.calls_at(self.task)
        try:
            stats = drainer()
        except Exception as error:
            if outstanding.is_late(error):
                log.warning("updates of %s are still under way after %g s.", self.task, _DRAIN_S)
            else:
                self._ask_failed(asked, error)
        else:
            outstanding.drained(self.task, calls)
            self._drained(asked, int(stats["background_failed"]))

    def _drained(self, asked: list[Any], failed: int) -> None:
        with self._condition:
            mine = [one for one in asked if one in self._waiting]
            if self._failed is not None and failed > self._failed and self._running:
                # One has failed and its error was told to the closure that runs: that will say so when it ends.
                self._doubtful = mine
                mine = []
                self._condition.notify_all()
            self._failed = failed
            self._take(mine)
        for _ in mine:
            self._cluster.closure_queue.mark_finished()

    def _ask_failed(self, asked: list[Any], error: Exception) -> None:
        with self._condition:
            mine = [one for one in asked if one in self._waiting]
            self._take(mine)
            self._failed = None
        for closure in mine:
            self._fail(closure, error)
        threading.Event().wait(_AGAIN_S)

    def _fail(self, closure: Any, error: BaseException | None) -> None:
        """Ends a closure whose update has failed, or of which nobody knows any more, as stock ends one that fails so."""
        queue = self._cluster.closure_queue
        by_itself = _UPDATE in str(error) and not isinstance(
            error, (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
        )
        ps_is_gone = cluster_coordinator._is_ps_failure(error) and not self._cluster._record_and_ignore_transient_ps_failure(
            error
        )
        if by_itself or ps_is_gone:
            closure.maybe_call_with_output_remote_value(lambda remote: remote._set_error(error))
            queue.mark_failed(error)
        else:
            self._give_back(closure)

    def _give_back(self, closure: Any) -> None:
        log.info("%s had not confirmed a closure; it is put back.", self.task)
        self.given_back += 1
        # It may run again much later. Were the worker's next closures still numbered in its epoch, parameter servers would
        # have forgotten by then what they applied of it.
        self.numbering.lose_count()
        self._cluster.closure_queue.put_back(closure)


_CREATE = threading.Lock()
_CONFIRMERS: weakref.WeakSet[Confirmer] = weakref.WeakSet()


def settle(tasks: set[str], timeout_s: float) -> None:
    """Waits until what has returned on the tasks is confirmed, for ``timeout_s`` at most."""
    deadline_s = time.monotonic() + timeout_s
    with _CREATE:
        asked = [one for one in _CONFIRMERS if one.task in tasks]
    late = [one.task for one in asked if not one.settle(deadline_s)]
    if late:
        log.warning("closures of %s were not confirmed within %g s.", ", ".join(sorted(late)), timeout_s)


def _confirmer(worker: Any) -> Confirmer:
    with _CREATE:
        found: Confirmer | None = worker.__dict__.get("_tfsched_confirmer")
        if found is None:
            found = worker._tfsched_confirmer = Confirmer(worker)
        return found


@functools.lru_cache(maxsize=1)
def confirm_closures() -> None:
    """Makes every coordinator of this process wait for updates as said above; closures without any end as in stock."""
    worker_class = cluster_coordinator.Worker
    queue_class = cluster_coordinator._CoordinatedClosureQueue
    process, failure, finished = worker_class._process_closure, worker_class._on_closure_failure, queue_class.mark_finished
    execute = cluster_coordinator.Closure.execute_on
    process_resource = worker_class._process_resource_closure

    @functools.wraps(process)
    def process_closure(self: Any, closure: Any) -> None:
        current.closure = Running(_confirmer(self), closure)
        current.closure.confirmer.begin()
        try:
            process(self, closure)
        finally:
            running, current.closure = current.closure, None
            running.confirmer.end(running.error)

    @functools.wraps(process_resource)
    def process_resource_closure(self: Any, closure: Any) -> None:
        current.resource = True
        try:
            process_resource(self, closure)
        finally:
            current.resource = False

    @functools.wraps(execute)
    def execute_on(self: Any, worker: Any) -> None:
        try:
            execute(self, worker)
        except Exception as error:
            if current.closure is not None:
                current.closure.error = error
            raise

    @functools.wraps(finished)
    def mark_finished(self: Any) -> None:
        running = current.closure
        if running is not None and running.client is not None:
            running.confirmer.returned(running.closure, running.client)
        else:
            finished(self)

    @functools.wraps(failure)
    def on_closure_failure(self: Any, closure: Any, error: BaseException) -> None:
        failure(self, closure, error)
        _confirmer(self).lost()

    worker_class._process_closure = process_closure
    worker_class._process_resource_closure = process_resource_closure
    worker_class._on_closure_failure = on_closure_failure
    queue_class.mark_finished = mark_finished
    cluster_coordinator.Closure.execute_on = execute_on
