"""What the bench does in a task that the user has started and that does not measure: it serves the one that does."""

from __future__ import annotations

import socket
import subprocess
import threading
import time

from tfsched.bench.errors import BenchFailed
from tfsched.bench.machines.base import python_of_this_process
from tfsched.bench.machines.lines import Lines
from tfsched.bench.machines.local import own_environment
from tfsched.bench.machines.piped import PipedTask
from tfsched.bench.machines.places import Place
from tfsched.bench.testbed import OWN_GROUP

_AGAIN_S = 0.5
_CONNECT_S = 10.0


class Serving:
    """A task that serves until the first one is done.

    Args:
        own: this task's place.
        first: the place of the task that measures.
        timeout_s: how long that one may take to come.
    """

    def __init__(self, own: Place, first: Place, timeout_s: float) -> None:
        self._own, self._first, self._timeout_s = own, first, timeout_s
        self._tasks: dict[int, PipedTask] = {}

    def run(self) -> None:
        """Serves.

        Raises:
            BenchFailed: the first task cannot be reached, has ended with an error, or has vanished.
        """
        lines = self._connect(self._timeout_s)
        lines.send({"bench": self._own.host})
        try:
            while (asked := lines.receive()) is not None:
                if "start" in asked:
                    self._start(asked["start"], asked["name"], lines)
                elif "stop" in asked and asked["stop"] in self._tasks:
                    self._tasks[asked["stop"]].stop()
                elif "end" in asked:
                    if asked["end"] is not None:
                        raise BenchFailed(f"the bench of {self._first.host} has ended without a result: {asked['end']}")
                    return
            raise BenchFailed(f"the bench of {self._first.host} is gone: see what it printed, and start all tasks again")
        finally:
            for task in self._tasks.values():
                task.stop()
            lines.close()

    def _connect(self, timeout_s: float) -> Lines:
        """A connection to the first task's bench, which may have started later than this one."""
        host, _, port = self._first.host.rpartition(":")
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                connection = socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S)
            except OSError as error:
                if time.monotonic() > deadline_s:
                    raise BenchFailed(
                        f"the bench of {self._first.host} cannot be reached within {timeout_s:.0f} s "
                        f"({error.strerror or error}): start the same command there, or raise --timeout_s"
                    ) from None
                time.sleep(_AGAIN_S)
            else:
                connection.settimeout(None)
                return Lines(connection)

    def _start(self, number: int, name: str, lines: Lines) -> None:
        """Starts a task whose standard input and output are a connection to the first task."""
        own = self._connect(_CONNECT_S)
        own.send({"process": number})
        process = subprocess.Popen(
            python_of_this_process(),
            stdin=own.socket.fileno(),
            stdout=own.socket.fileno(),
            stderr=subprocess.PIPE,
            env=own_environment(),
            **OWN_GROUP,
        )
        own.socket.close()  # the task has it
        task = self._tasks[number] = PipedTask(process, f"[{name}] ")

        def tell() -> None:
            code = process.wait()
            lines.send({"ended": number, "code": code, "log": task.log()})

        threading.Thread(target=tell, daemon=True).start()
