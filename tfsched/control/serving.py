"""Starts and ends what a process serves about itself: the control service and its metrics."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import threading
from typing import Any

from tfsched.control import access, idle
from tfsched.errors import TfschedError
from tfsched.ops import library

_CLOSE_S = 5
_INSTALL = "run pip install 'tfsched[control]'"
_OPEN: set[ControlServer] = set()
# In a forked child: what must be neither used nor freed.
_OF_PARENT: list[tuple[Any, Any]] = []


class ControlServer:
    """What :func:`serve_control` has started; a context manager, whose end closes it.

    Attributes:
      address: "127.0.0.1:port" of the control service, for ``tfsched top``; None where it is not served.
      metrics_url: for Prometheus; None where no metrics are served.
    """

    def __init__(self, address: str, port: int | None, metrics_port: int | None, token: str | None):
        self.address: str | None = None
        self.metrics_url: str | None = None
        self._service: Any = None
        self._http: Any = None
        self._listening: dict[int, int] = {}  # descriptor -> inode
        try:
            if port is not None:
                try:
                    from tfsched.control import service
                except ImportError as error:
                    raise _missing("the control service", "grpcio", error) from None
                self._service, bound = service.start(address, port, token)
                self.address = access.joined(address, bound)
                self._listening.update({one: os.fstat(one).st_ino for one in _listeners(bound)})
            if metrics_port is not None:
                try:
                    from tfsched.control import metrics
                except ImportError as error:
                    raise _missing("metrics", "prometheus_client", error) from None
                self._http, bound = metrics.start(address, metrics_port, token)
                self.metrics_url = f"http://{access.joined(address, bound)}{metrics.PATH}"
                self._listening[self._http.fileno()] = os.fstat(self._http.fileno()).st_ino
        except BaseException:
            self.close()
            raise
        _OPEN.add(self)
        idle.begin()

    def close(self) -> None:
        """Ends it; its ports are free afterwards. A second call does nothing."""
        _OPEN.discard(self)
        self._listening.clear()
        http, self._http = self._http, None
        if http is not None:
            http.shutdown()
            http.server_close()
        service, self._service = self._service, None
        if service is not None:
            service.stop(None).wait(_CLOSE_S)

    def __enter__(self) -> ControlServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _leave_to_parent(self) -> None:
        """In a forked child: no thread of ours is here, and the ports are the parent's alone.

        Some versions of gRPC have closed theirs by now. Where it has not, it may do so later: they lead nowhere until then.
        """
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor, inode in self._listening.items():
            with contextlib.suppress(OSError):
                if os.fstat(descriptor).st_ino == inode:
                    os.dup2(nowhere, descriptor)
        os.close(nowhere)
        self._listening.clear()
        # To end them would wait for threads that are not here.
        _OF_PARENT.append((self._service, self._http))
        self._service = self._http = None


def serve_control(
    port: int | None = 0, host: str = "127.0.0.1", token: str | None = None, metrics_port: int | None = None
) -> ControlServer:
    """Serves this process's counters, options in force and last transfers, for ``tfsched top`` and Prometheus; read only.

    Args:
      port: of the control service; 0 for a free one, None for no control service.
      host: address of the interface to listen on.
      token: that askers have to send; needed where ``host`` reaches beyond this machine.
      metrics_port: of ``/metrics``; 0 for a free one, None for no metrics.

    Raises:
      TfschedError: the host is not this machine's alone and there is no token; a port cannot be listened on; grpcio, or
        prometheus_client, is not installed; this process was forked from one that serves.
    """
    for name, value in (("port", port), ("metrics_port", metrics_port)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 16):
            raise TfschedError(f"{name} is {value!r}; give a port from 0 (a free one) to 65535.")
    if port is None and metrics_port is None:
        raise TfschedError("port and metrics_port are both None; give at least one, 0 for a free port.")
    if _OF_PARENT:  # gRPC cannot be used any more
        raise TfschedError(
            "this process was forked from one that serves, and cannot serve itself; start it as a program of its own "
            '(multiprocessing: "spawn").'
        )
    token = access.checked_token(token)
    address = access.resolved(host, token, "the control service")
    library.load()
    return ControlServer(address, port, metrics_port, token)


def _missing(what: str, distribution: str, error: ImportError) -> TfschedError:
    return TfschedError(f"{what} cannot be served without {distribution} ({error}); {_INSTALL}.")


def _listeners(port: int) -> list[int]:
    """Descriptors of this process that listen on ``port``."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and one.getsockname()[1] == port:
                    found.append(int(name))
        except (OSError, IndexError):  # closed since, or of a family without ports
            continue
    return found


def _close_all() -> None:
    for server in list(_OPEN):
        server.close()


def _forget() -> None:
    for server in list(_OPEN):
        server._leave_to_parent()
    _OPEN.clear()


# Before Python ends thread pools, which would leave calls without an answer. The hook has no public name yet.
getattr(threading, "_register_atexit", atexit.register)(_close_all)
os.register_at_fork(after_in_child=_forget)
