"""What every way to run tasks offers: machines that start processes, and processes that get requests and answer."""

from __future__ import annotations

import abc
import sys

TASK = ("-W", "ignore", "-m", "tfsched.bench.task")
"""What Python runs for a task."""

COORDINATION = "coordination"
"""The machine of the coordinators."""


class TaskProcess(abc.ABC):
    """One process of a task. Requests and answers are lines of JSON."""

    @abc.abstractmethod
    def fileno(self) -> int:
        """Readable when an answer, or its end, has come."""

    @abc.abstractmethod
    def read(self) -> bytes:
        """What has come; empty at the end."""

    @abc.abstractmethod
    def write(self, data: bytes) -> None:
        """Sends a request.

        Raises:
            OSError: the process has ended.
        """

    @abc.abstractmethod
    def poll(self) -> int | None:
        """The exit code, None while the process runs."""

    @abc.abstractmethod
    def log(self) -> list[str]:
        """The last lines that the process has printed."""

    @abc.abstractmethod
    def close(self) -> None:
        """Tells the process that there will be no request any more: it ends."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Ends the process with its group, if it still runs."""

    def died(self) -> str:
        """What its early end means; the end of the log follows it."""
        return f"died with exit code {self.poll()}: the end of its log follows"


class Machines(abc.ABC):
    """The machines of a cluster. A machine has the name of its task, or COORDINATION.

    `open` and `close` belong to one cluster, and several may follow one another. `end` is for whoever made the machines.

    Attributes:
        real: whether each task may have a machine of its own. Then machines share no cores and no clock with this process,
            and nothing here limits their links.
    """

    real = True

    def __init__(self) -> None:
        self._processes: list[TaskProcess] = []

    def open(self) -> None:  # noqa: B027  # most need nothing
        """Makes what the processes of a cluster need."""

    @abc.abstractmethod
    def address(self, name: str) -> str:
        """The address at which the others reach a machine."""

    def ports(self, name: str, count: int) -> list[int] | int:
        """The ports of the next `count` servers on a machine; a number leaves the choice to the machine."""
        del name
        return count

    @abc.abstractmethod
    def _launch(self, process: str, name: str) -> TaskProcess:
        """Starts a task on a machine."""

    def start(self, process: str, name: str) -> TaskProcess:
        """Starts a task's process on a machine.

        Args:
            process: its name, as in messages.
            name: the machine's.
        """
        started = self._launch(process, name)
        self._processes.append(started)
        return started

    def describe(self, process: str, name: str) -> str:
        """A process in messages."""
        del name
        return process

    def end(self, error: BaseException | None) -> None:  # noqa: B027  # most have nobody to tell
        """Tells machines that wait for something to do that there is nothing more; `error` is why, if it was one."""

    def close(self) -> None:
        """Ends all processes of a cluster; may be called more than once."""
        for process in self._processes:
            process.stop()
        self._processes.clear()


def python_of_this_process() -> list[str]:
    """The command of a task in this process's own Python."""
    return [sys.executable, *TASK]
