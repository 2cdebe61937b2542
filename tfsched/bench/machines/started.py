"""Tasks on machines where the user has started a bench, too: they connect to the one that measures."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping

from tfsched.bench.errors import BenchError, BenchFailed
from tfsched.bench.machines.base import Machines, TaskProcess, python_of_this_process
from tfsched.bench.machines.lines import Lines
from tfsched.bench.machines.local import own_environment
from tfsched.bench.machines.piped import PipedTask
from tfsched.bench.machines.places import Place
from tfsched.bench.testbed import OWN_GROUP, wait_until

_HEADER_S = 10.0
_GRACE_S = 3.0


class _Bench:
    """Another task's bench: it starts processes and tells of their ends."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.codes: dict[int, int] = {}
        self.logs: dict[int, list[str]] = {}
        self.gone = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while (said := self.lines.receive()) is not None:
            self.logs[said["ended"]], self.codes[said["ended"]] = said["log"], said["code"]
        self.gone = True


class _SocketTask(TaskProcess):
    """A task whose bench has given it our connection as standard input and output."""

    def __init__(self, bench: _Bench, number: int, connection: socket.socket) -> None:
        self._bench, self._number, self._connection = bench, number, connection

    def fileno(self) -> int:
        return self._connection.fileno()

    def read(self) -> bytes:
        try:
            data = self._connection.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            wait_until(lambda: self.poll() is not None, 5.0)
        return data

    def write(self, data: bytes) -> None:
        self._connection.sendall(data)

    def poll(self) -> int | None:
        code = self._bench.codes.get(self._number)
        return 1 if code is None and self._bench.gone else code

    def log(self) -> list[str]:
        return self._bench.logs.get(self._number, [])

    def died(self) -> str:
        if self._number in self._bench.codes:
            return super().died()
        return "is gone: the bench of that task has ended, or its host cannot be reached any more; see what it printed"

    def close(self) -> None:
        self._connection.close()

    def stop(self) -> None:
        for _ in range(2):
            if wait_until(lambda: self.poll() is not None, _GRACE_S):
                return
            self._bench.lines.send({"stop": self._number})


class StartedMachines(Machines):
    """The machines of tasks that the user has started. This process is one of them.

    Args:
        assigned: machine of the cluster -> its place.
        own: this process's place.
        timeout_s: how long the others may take to come.
    """

    def __init__(self, assigned: Mapping[str, Place], own: Place, timeout_s: float) -> None:
        super().__init__()
        self._assigned, self._own, self._timeout_s = assigned, own, timeout_s
        self._numbers = itertools.count()
        self._benches: dict[str, _Bench] = {}
        self._connections: dict[int, socket.socket] = {}
        self._listening: socket.socket | None = None

    def open(self) -> None:
        if self._listening is None:
            port = int(self._own.host.rpartition(":")[2])
            try:
                self._listening = socket.create_server(("", port))
            except OSError as error:
                reason = os.strerror(error.errno or 0)
                raise BenchFailed(
                    f"port {port} of this task in TF_CONFIG cannot be used ({reason}): end what holds it, or name another "
                    "port in all tasks"
                ) from None
        wanted = {place.host for place in self._assigned.values()} - {self._own.host}
        if not self._accept_until(lambda: wanted <= self._benches.keys()):
            missing = ", ".join(sorted(wanted - self._benches.keys()))
            raise BenchFailed(
                f"no bench of {missing} has come within {self._timeout_s:.0f} s: start the same command in each task of "
                "TF_CONFIG, or raise --timeout_s"
            )

    def _accept_until(self, condition: Callable[[], bool]) -> bool:
        """Takes what connects: benches, and the processes that they have started. False if it takes too long."""
        assert self._listening is not None
        deadline_s = time.monotonic() + self._timeout_s
        self._listening.settimeout(0.25)
        while not condition():
            if time.monotonic() > deadline_s:
                return False
            with contextlib.suppress(TimeoutError):
                connection, _ = self._listening.accept()
                self._take(connection)
        return True

    def _take(self, connection: socket.socket) -> None:
        connection.settimeout(_HEADER_S)
        lines = Lines(connection)
        header = lines.receive() or {}
        connection.settimeout(None)
        if isinstance(header.get("bench"), str):
            self._benches[header["bench"]] = _Bench(lines)
        elif isinstance(header.get("process"), int):
            self._connections[header["process"]] = connection
        else:  # somebody else's
            lines.close()

    def address(self, name: str) -> str:
        return self._assigned[name].address

    def describe(self, process: str, name: str) -> str:
        return f"{process} on {self._assigned[name].host}"

    def _launch(self, process: str, name: str) -> TaskProcess:
        place = self._assigned[name]
        if place.host == self._own.host:
            pipes = {stream: subprocess.PIPE for stream in ("stdin", "stdout", "stderr")}
            command = python_of_this_process()
            return PipedTask(subprocess.Popen(command, env=own_environment(), **pipes, **OWN_GROUP))  # type: ignore[call-overload]
        number, bench = next(self._numbers), self._benches[place.host]
        bench.lines.send({"start": number, "name": process})
        if not self._accept_until(lambda: number in self._connections or bench.gone) or bench.gone:
            raise BenchFailed(f"{self.describe(process, name)} did not start: see what the bench of that task printed")
        return _SocketTask(bench, number, self._connections.pop(number))

    def end(self, error: BaseException | None) -> None:
        reason = None if error is None else str(error) if isinstance(error, BenchError) else "it was interrupted"
        for bench in self._benches.values():
            bench.lines.send({"end": reason})
        for bench in self._benches.values():  # their end of the connection shows that they have heard it
            wait_until(lambda one=bench: one.gone, _GRACE_S)
            bench.lines.close()
        if self._listening is not None:
            self._listening.close()
