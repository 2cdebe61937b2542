"""Where updates may still be under way in the background, and waiting for them before anybody could miss one."""

from __future__ import annotations

import functools
import json
import threading
import time
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.coordinator import coordinator_context
from tensorflow.python.eager import context as context_lib
from tensorflow.python.ops import resource_variable_ops

from tfsched._log import log
from tfsched.eager import capability, numbering, own_updates
from tfsched.eager.thread import current, unscheduled
from tfsched.errors import TfschedError
from tfsched.grappler.reading.clients import client_of_worker
from tfsched.ops import library

DEFAULT_TIMEOUT_S = 30.0
_JOIN_S = 10.0  # beyond a drain's own limit, for a task that does not answer at all

# Task -> the client whose function was called there with barrier=False since the task was last drained.
tasks: dict[str, str] = {}
_LOCK = threading.Lock()
# Task -> how many such calls there were: a drain frees a task only if there was none meanwhile.
_calls: dict[str, int] = {}
# Task -> how many of these have not returned. What they leave under way may begin behind a drain that is asked for now.
_running: dict[str, int] = {}
_SOME_RUN = -1  # no number of calls
# Drainers' functions, one for each task, client and limit, and one more whenever such a task is lost. None is given back:
# TensorFlow takes a function away from all tasks of the cluster, and fails where one of them has come since, or another
# cluster has taken its place.
_made: list[Any] = []


@functools.lru_cache(maxsize=1024)
def _task_of(device: str) -> str | None:
    """The task of a device's name; None if it names none."""
    spec = tf.DeviceSpec.from_string(device)
    if spec.job is None:
        return None
    return f"/job:{spec.job}/replica:{spec.replica or 0}/task:{spec.task or 0}"


def own_task() -> str:
    """This process, as a task of its cluster."""
    server_def = context_lib.get_server_def() or context_lib.context()._collective_ops_server_def
    if server_def is None:
        return "/job:localhost/replica:0/task:0"
    return f"/job:{server_def.job_name}/replica:0/task:{server_def.task_index}"


def before_call(context: Any, inputs: Any, client: str | None, function: Any = None) -> str | None:
    """Called before a function runs: waits for what it has to see, and notes what it may leave under way.

    The task where a function is called orders it behind that task's own updates. Of other tasks' it must see what its own
    thread has called there, and outside a coordinator's closures all: there, whoever can call has seen those calls return.

    Args:
      context: the eager context.
      inputs: the function's inputs.
      client: who trains; None if the function ends with its updates.
      function: what decides whether the call leaves updates under way: its name and its setting.

    Returns:
      For :func:`after_call`, the task that the call was noted for; None if it was not.
    """
    task = _called_at(context)
    if own_updates.is_member():
        waits = own_updates.waits_by_itself(function)
        if tasks and not waits:
            own_updates.wait_for(inputs)
        if client is None or waits is False:
            return None
    elif tasks:
        if client is None:
            if _takes_variables(inputs):
                drain_all(None)
        elif coordinator_context.get_current_dispatch_context() is None:
            others = [one for one in tasks if one != task]
            if others and _takes_variables(inputs):
                drain(others, None)
    if client is None or not (task == own_task() or capability.knows(task)):
        return None
    with _LOCK:
        tasks[task] = client
        _calls[task] = _calls.get(task, 0) + 1
        _running[task] = _running.get(task, 0) + 1
    try:
        if current.closure is not None and current.closure.confirmer.task == task:
            current.closure.before_call(function, client)
        else:
            numbering.called_besides(task, own_thread=current.resource)
            if current.closure is not None:
                current.closure.client = client
    except BaseException:
        after_call(task)
        raise
    return task


def after_own_call(function: Any, before: int, client: str) -> None:
    """Called when a call has returned of which it was not certain whether it waits for updates (own_updates.py)."""
    if own_updates.after_call(function, before):
        with _LOCK:
            tasks[own_task()] = client
            _calls[own_task()] = _calls.get(own_task(), 0) + 1


def after_call(task: str) -> None:
    """Called when a call that was noted for the task has ended, in whatever way."""
    with _LOCK:
        _running[task] -= 1


def _called_at(context: Any) -> str:
    """The task where a function that is called now begins."""
    return _task_of(context.device_name or "") or own_task()


def call_failed(context: Any) -> None:
    """Called when a function that ``before_call`` was told of has failed."""
    capability.forget(_called_at(context))
    if current.closure is not None:
        current.closure.confirmer.numbering.lose_count()


def is_elsewhere(context: Any) -> bool:
    """Whether a function that is called now begins on another task."""
    return bool(context.device_name) and _called_at(context) != own_task()


def _takes_variables(inputs: Any) -> bool:
    """Whether any input is a resource, and so maybe a variable."""
    return any(one.dtype == tf.resource for one in inputs)


def calls_at(task: str) -> int:
    """What to tell :func:`drained` of a drain that begins now."""
    return _SOME_RUN if _running.get(task) else _calls.get(task, 0)


def drained(task: str, calls: int) -> None:
    """The task has been drained since its ``calls``-th call: nothing is under way there, if there was none after that.

    If one had been noted and had not returned, the drain may have come before its updates, and says nothing of the task.
    """
    with _LOCK:
        if _calls.get(task, 0) == calls:
            tasks.pop(task, None)


def forget(task: str) -> None:
    """The task is no longer of this process's cluster, or another process."""
    with _LOCK:
        tasks.pop(task, None)
    _drainer.cache_clear()


def drain_all(timeout_s: float | None = DEFAULT_TIMEOUT_S) -> None:
    """Waits for every task; see :func:`drain`."""
    if tasks:
        drain(list(tasks), timeout_s)


def drain(which: list[str], timeout_s: float | None = DEFAULT_TIMEOUT_S) -> None:
    """Waits until the updates of all calls that have returned on these tasks are applied.

    Args:
      which: the tasks.
      timeout_s: None waits as long as the tasks say that updates are under way, for whoever did not ask for a drain.

    Raises:
      TfschedError: the time is over, or a task has not answered.
      tf.errors.OpError: an update failed; with the update's own code.
    """
    limit_s = DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s
    errors: dict[str, BaseException | None] = {}
    with _LOCK:
        before = {task: (calls_at(task), tasks[task]) for task in which if task in tasks}
    heard_s = dict.fromkeys(before, time.monotonic())

    def wait(task: str, number: int, client: str) -> None:
        # A call that has not returned is nobody's to wait for: it may last longer than any limit.
        drainer = _drainer(task, client, limit_s, number == _SOME_RUN)
        while task not in errors:
            try:
                drainer()
                errors[task] = None
            except BaseException as error:
                if timeout_s is None and is_late(error) and _is_answer(error):
                    heard_s[task] = time.monotonic()
                    log.warning("updates of %s are still under way after %g s; a read waits for them.", task, limit_s)
                else:
                    errors[task] = error

    threads = {
        task: threading.Thread(target=wait, args=(task, *one), name=f"tfsched-drain-{task}", daemon=True)
        for task, one in before.items()
    }
    for thread in threads.values():
        thread.start()
    for task, thread in threads.items():
        while thread.is_alive() and (left_s := heard_s[task] + limit_s + _JOIN_S - time.monotonic()) > 0:
            thread.join(left_s)
    for task, (number, _) in before.items():
        # Where an update has failed nothing is outstanding either: its error is told, once.
        if task in errors and not is_late(errors[task]):
            drained(task, number)
    for task in before:
        error = errors.setdefault(task, tf.errors.DeadlineExceededError(None, None, "no answer"))
        if is_late(error):
            raise TfschedError(
                f"Updates of {task} were still outstanding after {limit_s:g} s; is a parameter server gone, or the "
                "network slow? Give drain a longer timeout_s."
            ) from None
        if error is not None and not _is_gone(error):
            raise error


def is_late(error: BaseException | None) -> bool:
    """Whether a drain failed because its time was over, and not with an update that had failed with the same code."""
    return isinstance(error, tf.errors.DeadlineExceededError) and "background update of" not in str(error)


def _is_answer(error: BaseException) -> bool:
    """Whether the task itself has said so: of an update that failed, or of those that are outstanding."""
    return "background update" in str(error)


def _is_gone(error: BaseException) -> bool:
    """Whether the error says that the task itself is gone, and with it whatever was under way."""
    if _is_answer(error):
        return False
    # It may have come back without tfsched, too.
    unknown = isinstance(error, tf.errors.NotFoundError) and "TfschedDrain" in str(error)
    return unknown or isinstance(error, (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.InvalidArgumentError))


@functools.lru_cache(maxsize=256)
def _drainer(task: str, client: str, timeout_s: float, returned: bool) -> Drainer:
    return Drainer(task, client, timeout_s, returned)


class Drainer:
    """Drains one task from here, by a function of this process whose only part on the task is the wait.

    Not by an op called on the task: that would hold one of the threads that serve the task's RPCs for as long as it waits,
    of which there may be two, and the updates that it waits for need them.

    Args:
      task: the task.
      client: whose updates.
      timeout_s: how long to wait at most.
      returned: only for the updates of steps that have returned, and not for a step that runs.
    """

    def __init__(self, task: str, client: str, timeout_s: float, returned: bool):
        self._task, self._client = task, client_of_worker(client, task)
        self._timeout_ms = max(1, int(timeout_s * 1000))
        self._returned = returned
        self._function: Any = None

    def __call__(self) -> dict[str, Any]:
        """Waits; the task's counters (:func:`tfsched.stats`) after that.

        Raises:
          tf.errors.OpError: the time is over (:func:`is_late`), an update failed, or the task is gone.
        """
        with unscheduled(), tf.device(own_task()):
            try:
                if self._function is None:
                    self._function = self._make()
                return dict(json.loads(self._function().numpy()))
            except tf.errors.OpError as error:
                # A task that has been restarted does not know the parts of functions that it had before.
                if not _is_answer(error):
                    self._function = None
                raise

    def _make(self) -> Any:
        ops = library.load()

        @tf.function(autograph=False)
        def tfsched_drain() -> Any:
            with tf.device(f"{self._task}/device:CPU:0"):
                drained = ops.tfsched_drain(client=self._client, timeout_ms=self._timeout_ms, returned=self._returned)
                with tf.control_dependencies([drained]):
                    return ops.tfsched_stats()

        # Each drainer makes one of these, and TensorFlow would take them for one function that is traced again and again.
        function = tfsched_drain.get_concrete_function()
        _made.append(function)
        return function


@functools.lru_cache(maxsize=1)
def watch() -> None:
    """Has this process wait, from now on, before it uses a variable outside a function while updates are under way.

    A checkpoint, a summary or ``numpy()`` read variables this way, and what they read has to be of finished steps. A
    variable's handle is what all of them ask for.
    """
    own_updates.watch()
    stock = resource_variable_ops.BaseResourceVariable.handle

    def handle(self: Any) -> Any:
        touched = tasks and not current.own and context_lib.executing_eagerly()
        if touched and own_updates.is_member():
            found = stock.fget(self)
            own_updates.wait_for([found])
            return found
        if touched and coordinator_context.get_current_dispatch_context() is None:
            drain_all(None)
        return stock.fget(self)

    resource_variable_ops.BaseResourceVariable.handle = property(handle, doc=stock.__doc__)
