"""A task behind the pipes of a process of this machine: the task itself, or a client that starts it elsewhere."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections import deque

from tfsched.bench.machines.base import TaskProcess
from tfsched.bench.testbed import stop_process

_LOG_LINES = 12
_CLOSED_AFTER_S = 2.0
_GRACE_S = 3.0


class PipedTask(TaskProcess):
    """Args:
    process: with pipes for all three streams, and a process group of its own.
    prefix: what each line that it prints gets in front on this process's stderr; None shows none of them.
    """

    def __init__(self, process: subprocess.Popen[bytes], prefix: str | None = None) -> None:
        self._process, self._prefix = process, prefix
        self._lines: deque[str] = deque(maxlen=_LOG_LINES)
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process, which is its group's number as well."""
        return self._process.pid

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            text = line.decode(errors="replace").rstrip("\n")
            self._lines.append(text)
            if self._prefix is not None:
                with contextlib.suppress(OSError, ValueError):
                    sys.stderr.write(f"{self._prefix}{text}\n")

    def fileno(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def read(self) -> bytes:
        data = os.read(self.fileno(), 1 << 16)
        if not data:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        return data

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def poll(self) -> int | None:
        return self._process.poll()

    def log(self) -> list[str]:
        if self.poll() is not None:  # a grandchild may keep the pipe open for ever
            self._reader.join(_CLOSED_AFTER_S)
        return list(self._lines)

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()

    def stop(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        stop_process(self._process)
        self._reader.join(_CLOSED_AFTER_S)  # or what it said last is not shown, for this process may end now
