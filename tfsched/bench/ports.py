"""Ports of this machine for servers that are started a moment later, in other processes."""

from __future__ import annotations

import contextlib
import pathlib
import random
import socket
from collections import deque

from tfsched.bench.errors import BenchFailed

_CANDIDATES = 15000
_END = 65536
_LINUX_FIRST_EPHEMERAL = 32768
_HELD = 64

# A datagram socket on the same port tells other callers of free_ports, of all processes, that it is given away.
_held: deque[socket.socket] = deque()


def first_ephemeral() -> int:
    """The lowest port that the system gives to outgoing connections and to sockets bound to port 0."""
    try:
        return int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _LINUX_FIRST_EPHEMERAL


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """`count` ports that nobody holds, drawn from those that the system gives to nobody by itself.

    A port that the system chose could be given to any connection of this machine before its server binds it: the server
    would not start. Where the system leaves too few (its range may begin at 1024), the others are drawn from its own. No
    other call gives the same port away while this process lives, until it has asked for 64 more.

    Args:
        count: how many.
        host: the address of this machine at which they are free; "" is all of its addresses.

    Raises:
        BenchFailed: there are too few.
    """
    first = first_ephemeral()
    draw = random.SystemRandom()  # a seed of the caller's must not lead two processes to the same ports
    below, beyond = range(max(1024, first - _CANDIDATES), first), range(max(1024, first), _END)
    candidates = [*draw.sample(beyond, len(beyond)), *draw.sample(below, len(below))]
    found: list[int] = []
    while candidates and len(found) < count:
        port = candidates.pop()
        if _hold(port, host):
            found.append(port)
    if len(found) < count:
        raise BenchFailed(
            f"only {len(found)} of {count} ports of {host or 'this machine'} are free: end some of what holds the others"
        )
    while len(_held) > max(_HELD, count):
        _held.popleft().close()
    return found


def check_free(port: int) -> None:
    """Refuses a port that a server of this machine has.

    Raises:
        BenchFailed: it is taken, or may not be used.
    """
    with socket.socket() as probe:
        # Connections that ended a moment ago keep a port for a while, and no server from it.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise BenchFailed(
                f"port {port} cannot be used ({error.strerror}): end what holds it, or give another port"
            ) from error


def free_port() -> int:
    """One of `free_ports`."""
    return free_ports(1)[0]


def _hold(port: int, host: str) -> bool:
    with contextlib.ExitStack() as unless_free:
        mark = unless_free.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            mark.bind((host, port))
            unless_free.pop_all()
            _held.append(mark)
            return True
    return False
