"""The tasks that are tuned together, and how one process reads and changes the schedulers of all of them."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any

from tensorflow.python.eager import context as context_lib

from tfsched.control import about
from tfsched.errors import TfschedError
from tfsched.ops import configure as configuring
from tfsched.ops.control import stats, target_of
from tfsched.tuning import Setting
from tfsched.tuning.space import WITHOUT_CREDIT

# For all tasks to answer; those that are gone do not.
ANSWER_S = 10.0
_MEMBERS = ("chief", "worker")


@dataclasses.dataclass(frozen=True)
class Task:
    """One task: ``read`` gives its counters, ``change`` takes a policy and a credit; both raise TfschedError."""

    name: str
    read: Callable[[], dict[str, Any]]
    change: Callable[[str, int], Any]


class Reach:
    """All tasks of a training.

    Attributes:
      workers, servers: how many there are.
      all_reduces: whether workers all-reduce, so that the size of pieces can be changed while training runs.
      skipped: task -> why it is left alone, once :meth:`begin` has asked all.
    """

    def __init__(self, tasks: list[Task], workers: int, servers: int, all_reduces: bool):
        self.workers, self.servers, self.all_reduces = workers, servers, all_reduces
        self.skipped: dict[str, str] = {}
        self._tasks = tasks
        self._before: dict[str, tuple[str, int]] = {}

    def begin(self) -> tuple[str, int]:
        """Asks all tasks what is in force there, and leaves alone those that do not answer.

        Returns:
          Policy and credit that the first task which answers had been given; "graph" and -1 where graphs have their own.

        Raises:
          TfschedError: none answers.
        """

        def read(task: Task) -> None:
            now = task.read()
            self._before[task.name] = (now["policy"], now["credit_bytes"])

        self.skipped = self._each(read)
        if not self._tasks:
            name, reason = next(iter(self.skipped.items()), ("the cluster", "it has no task"))
            raise TfschedError(f"no task can be tuned ({name}: {reason}); start tasks that import tfsched.")
        return self._before[self._tasks[0].name]

    def apply(self, setting: Setting, pieces: bool) -> dict[str, str]:
        """Puts a setting in force, its pieces if ``pieces``; task -> why it could not be changed."""
        if pieces:
            configuring.set_piece_bytes(setting.partition_bytes)
        # A policy that does not look at the credit leaves it alone: what goes by graphs' own policies still does.
        credit_bytes = -1 if setting.policy in WITHOUT_CREDIT else setting.credit_bytes
        return self._each(lambda task: task.change(setting.policy, credit_bytes))

    def restore(self) -> dict[str, str]:
        """Puts back what every task had before, but for those that have failed once; task -> why it could not be changed."""
        if self.all_reduces:
            configuring.set_piece_bytes(0)
        return self._each(lambda task: task.change(*self._before[task.name]))

    def give_back(self) -> dict[str, str]:
        """Leaves policy, credit and pieces to the graphs, whatever was before; task -> why it could not be changed."""
        if self.all_reduces:
            configuring.set_piece_bytes(0)
        return self._each(lambda task: task.change(configuring.GRAPH, -1))

    def _each(self, do: Callable[[Task], Any]) -> dict[str, str]:
        """Calls ``do`` for all tasks at once; task -> why it failed. Who fails, or does not answer, is never asked again."""
        state = {task.name: f"no answer within {ANSWER_S:g} s" for task in self._tasks}

        def one(task: Task) -> None:
            try:
                do(task)
                state[task.name] = ""
            except Exception as error:
                state[task.name] = str(error)

        # Nobody waits for these threads at the program's end: a session with a task that is gone may take minutes to close.
        threads = [threading.Thread(target=one, args=[task], name="tfsched-reach", daemon=True) for task in self._tasks]
        for thread in threads:
            thread.start()
        deadline_s = time.monotonic() + ANSWER_S
        for thread in threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        failed = {name: reason for name, reason in state.copy().items() if reason}
        self._tasks = [task for task in self._tasks if task.name not in failed]
        return failed


def of_session(session: Any) -> Reach:
    """The tasks that a session, or the sessions of a target, can see."""
    target, names = target_of(session), configuring.tasks_of(session)
    own = {_short(name) for name in about.tasks()}
    tasks = [_own(name) if _short(name) in own else _at(target, name) for name in names]
    jobs = [_job(name) for name in names]
    servers = jobs.count("ps")
    return Reach(tasks, max(1, len(jobs) - servers), servers, all_reduces=False)


def of_cluster() -> Reach | None:
    """The tasks of the cluster that this process has joined with TensorFlow 2; None where it is not this one's to tune them.

    A coordinator tunes parameter servers and workers; of workers that all-reduce the first one does, a chief before others.

    Raises:
      TfschedError: it has joined none.
    """
    joined = context_lib.get_server_def()
    if joined is not None:
        names = [name for name in _addresses(joined) if _job(name) != joined.job_name]
        tasks = [_joined(name) for name in names]
        servers = sum(_job(name) == "ps" for name in names)
        return Reach(tasks, len(names) - servers, servers, all_reduces=False)
    joined = context_lib.context()._collective_ops_server_def
    if joined is None:
        raise TfschedError(
            "this process has joined no cluster; give autotune the session, or call it when the strategy, or "
            "tfsched.parallel.init(), has made the cluster."
        )
    addresses = {name: where for name, where in _addresses(joined).items() if _job(name) in _MEMBERS}
    own = f"/job:{joined.job_name}/replica:0/task:{joined.task_index}"
    if own != min(addresses, key=lambda name: (_job(name), int(name.rpartition(":")[2]))):
        return None
    tasks = [_own(name) if name == own else _at(f"grpc://{where}", name) for name, where in addresses.items()]
    return Reach(tasks, len(addresses), 0, all_reduces=True)


def _own(name: str) -> Task:
    return Task(name, stats, lambda policy, credit: configuring.configure(policy=policy, credit_bytes=credit))


def _at(target: str, name: str) -> Task:
    def change(policy: str, credit_bytes: int) -> None:
        configuring.configure(target, task=name, policy=policy, credit_bytes=credit_bytes)

    return Task(name, lambda: stats(target, name), change)


def _joined(name: str) -> Task:
    return Task(name, lambda: stats(task=name), lambda policy, credit: configuring.configure_joined(name, policy, credit))


def _addresses(server_def: Any) -> dict[str, str]:
    return {
        f"/job:{job.name}/replica:0/task:{index}": address
        for job in server_def.cluster.job
        for index, address in sorted(job.tasks.items())
    }


def _job(name: str) -> str:
    return name.partition("/job:")[2].partition("/")[0]


def _short(name: str) -> str:
    return name.replace("/replica:0", "")
