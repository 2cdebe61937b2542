"""Connections on which benches send each other lines of JSON."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import Any

_SILENT_S, _PROBE_S, _PROBES = 30, 10, 6  # of a machine that has vanished we hear after a minute and a half


class Lines:
    """One connection. Any thread may send, one at a time receives."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", _SILENT_S), ("TCP_KEEPINTVL", _PROBE_S), ("TCP_KEEPCNT", _PROBES)):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection
        self._lock = threading.Lock()

    def send(self, content: dict[str, Any]) -> None:
        """Sends one line; nothing if nobody is there any more."""
        with self._lock, contextlib.suppress(OSError):
            self.socket.sendall(json.dumps(content).encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """The next line, read no further than its end; None if there is none, or none of the expected form."""
        line = b""
        with contextlib.suppress(OSError, ValueError):
            while not line.endswith(b"\n") and len(line) < 1 << 20:
                byte = self.socket.recv(1)  # what follows may be for a task that gets this socket
                if not byte:
                    return None
                line += byte
            content = json.loads(line)
            return content if isinstance(content, dict) else None
        return None

    def close(self) -> None:
        """Ends the connection, for the other side as well."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
