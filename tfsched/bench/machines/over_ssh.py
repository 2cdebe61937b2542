"""Tasks on other machines, each started by a command of this one such as ssh or srun."""

from __future__ import annotations

import abc
import shlex
import subprocess
from collections.abc import Mapping

from tfsched.bench.errors import BenchFailed
from tfsched.bench.machines.base import TASK, Machines
from tfsched.bench.machines.piped import PipedTask
from tfsched.bench.machines.places import Place
from tfsched.bench.testbed import OWN_GROUP

_NO_MODULE = "No module named "
_NOT_FOUND = 127  # as a shell says it


class StartedTask(PipedTask):
    """A task that a command starts on another machine.

    Args:
        process: the command's.
        place: where the task is.
        command: the command, for messages.
        prefix: as of PipedTask.
    """

    def __init__(self, process: subprocess.Popen[bytes], place: Place, command: list[str], prefix: str | None) -> None:
        super().__init__(process, prefix)
        self._place, self._command = place, command
        self._answered = False

    def read(self) -> bytes:
        data = super().read()
        self._answered = self._answered or bool(data)
        return data

    def died(self) -> str:
        if self._answered:
            return super().died()
        python = self._place.python
        for line in reversed(self.log()):
            if _NO_MODULE in line:
                module = line.rpartition(_NO_MODULE)[2].strip("'\" ")
                return (
                    f"cannot start: {python} has no module {module!r}; install tfsched for it there, or name another python"
                )
        if self.poll() == _NOT_FOUND:
            return f"cannot start: the host has no command {python!r}; name the path of its python"
        return (
            f"cannot be started: '{shlex.join(self._command)}' ended with exit code {self.poll()} before the task answered; "
            "this command must work in a shell without asking for anything; what it printed follows"
        )


class StartingMachines(Machines):
    """Machines on which a command starts the tasks.

    Args:
        assigned: machine of the cluster -> its place.
        show: whether what tasks print is shown, with their names in front.
    """

    def __init__(self, assigned: Mapping[str, Place], show: bool) -> None:
        super().__init__()
        self._assigned, self._show = assigned, show
        self._used: dict[int, int] = {}  # by the identity of a place: ports that its servers have

    @abc.abstractmethod
    def _command(self, place: Place) -> list[str]:
        """What starts a command on a place; the task's own command follows."""

    @abc.abstractmethod
    def _task(self, place: Place) -> list[str]:
        """The task's own command, as `_command` wants it."""

    def address(self, name: str) -> str:
        return self._assigned[name].address

    def ports(self, name: str, count: int) -> list[int] | int:
        place = self._assigned[name]
        if place.port is None:
            return count
        first = place.port + self._used.get(id(place), 0)
        self._used[id(place)] = self._used.get(id(place), 0) + count
        return list(range(first, first + count))

    def describe(self, process: str, name: str) -> str:
        return f"{process} on {self._assigned[name].host}"

    def open(self) -> None:
        self._used.clear()

    def _launch(self, process: str, name: str) -> PipedTask:
        place = self._assigned[name]
        command = self._command(place)
        pipes = {stream: subprocess.PIPE for stream in ("stdin", "stdout", "stderr")}
        try:
            client = subprocess.Popen([*command, *self._task(place)], **pipes, **OWN_GROUP)  # type: ignore[call-overload]
        except OSError as error:
            raise BenchFailed(
                f"{self.describe(process, name)} cannot be started: {command[0]!r} does not run here ({error.strerror}); "
                "install it, or name another command"
            ) from None
        return StartedTask(client, place, command, f"[{self.describe(process, name)}] " if self._show else None)


class SshMachines(StartingMachines):
    """Machines on which a shell runs what ssh, or a command like it, gets as its last argument."""

    def _command(self, place: Place) -> list[str]:
        return [*place.start, place.host]

    def _task(self, place: Place) -> list[str]:
        parts = [] if not place.directory else [f"cd {_quoted_path(place.directory)} &&"]
        # `exec`: the task takes the shell's place, so that its parent is sshd, which ends with the connection.
        parts += ["exec env", *(shlex.quote(f"{key}={value}") for key, value in place.environment.items())]
        return [" ".join([*parts, _quoted_path(place.python), *TASK])]


def _quoted_path(path: str) -> str:
    """A path for the shell, whose home directory may stand in front."""
    return f"~/{shlex.quote(path[2:])}" if path.startswith("~/") else path if path == "~" else shlex.quote(path)
