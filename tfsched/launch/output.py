"""Passes on what processes print, line by line, with the task's name in front."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import IO

_CLOSED_AFTER_S = 5.0


class Output:
    """The lines of many processes on one stream; no line is cut by another.

    Args:
      stream: where they go, in bytes.
      on_closed: called when nobody reads the stream any more.
    """

    def __init__(self, stream: IO[bytes], on_closed: Callable[[], None]) -> None:
        self._stream = stream
        self._on_closed = on_closed
        self._lock = threading.Lock()
        self._open = True

    def write(self, line: bytes) -> None:
        """Writes one whole line."""
        with self._lock:
            if not self._open:
                return
            try:
                self._stream.write(line)
                self._stream.flush()
            except (OSError, ValueError):
                self._open = False
                self._on_closed()


class Relay(threading.Thread):
    """Reads a process's pipe to its end."""

    def __init__(self, pipe: IO[bytes], prefix: str, output: Output) -> None:
        super().__init__(name=f"relay {prefix}", daemon=True)
        self._pipe, self._prefix, self._output = pipe, prefix.encode(), output
        self.start()

    def run(self) -> None:
        """As of any thread."""
        for line in self._pipe:
            self._output.write(self._prefix + line if line.endswith(b"\n") else self._prefix + line + b"\n")

    def finish(self) -> None:
        """Waits for the last line; not for long where a grandchild has kept the pipe."""
        self.join(_CLOSED_AFTER_S)
