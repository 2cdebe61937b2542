"""Network namespaces joined by rate-limited links: one host each, removed on every exit path."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any

from tfsched.bench.errors import BenchError

_COMMAND_TIMEOUT_S = 20.0
_NETWORK = "10.213.77.0/24"
_NAME = re.compile(r"^tfs(\d+)-\d+-")
_serials = itertools.count()

# How TCP shares a full link: as Linux does by default, whatever this machine's administrator prefers. BBR, for one, empties
# a connection from time to time to measure (docs/bench.md).
_CONGESTION_CONTROL = "cubic"
_AVAILABLE = "/proc/sys/net/ipv4/tcp_available_congestion_control"

# A group, so that a process is ended with its children, but not a session: Linux shares processor time by session first
# (autogroup) and weighs a session by its load on all cores. Of two workers on one core, the one whose threads wait more
# elsewhere would get more of it, and workers drift apart. Python 3.10 knows sessions only.
OWN_GROUP: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"start_new_session": True}


def _call(*argv: str) -> str:
    try:
        # In a group of its own: a terminal's Ctrl-C is for this program, which still has to take its namespaces away.
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False, **OWN_GROUP)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"`{' '.join(argv)}` did not run ({error}): use --link none") from error
    if done.returncode:
        raise BenchError(
            f"`{' '.join(argv)}` failed ({done.stderr.strip() or done.returncode}): use --link "
            "emulated or none on this machine"
        )
    return done.stdout


def core_mask(cores: Iterable[int]) -> str:
    """A set of cores as the kernel reads it: hexadecimal, in groups of 32 bits."""
    digits = f"{sum(1 << core for core in set(cores)):x}"
    first = len(digits) % 8
    return ",".join(filter(None, [digits[:first], *(digits[at : at + 8] for at in range(first, len(digits), 8))]))


def _burst_bytes(bandwidth_bps: float) -> int:
    # A bucket must hold what the link carries between two timer ticks (4 ms at 250 Hz), but 256 kB
    # is enough up to 1 Gbit/s in practice: a larger one would let short transfers pass unlimited.
    return max(256_000, int(bandwidth_bps / 8 / 1000))


def congestion_control(available: str = _AVAILABLE) -> str | None:
    """The congestion control of a testbed's connections; None leaves them this machine's, for it has no cubic."""
    try:
        with open(available, encoding="ascii") as file:
            return _CONGESTION_CONTROL if _CONGESTION_CONTROL in file.read().split() else None
    except OSError:
        return None


def stop_process(process: subprocess.Popen[Any], grace_s: float = 2.0) -> None:
    """Ends a process and its own group: asks, then kills, and reaps it."""
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            continue
        if number == signal.SIGTERM:
            # The leader is gone; children that ignored the signal are not.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return


class Hosts:
    """Several hosts that are all this machine's loopback; the interface every testbed offers."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self._processes: list[subprocess.Popen[Any]] = []

    def address(self, host: str) -> str:
        """The address at which the other hosts reach `host`."""
        del host
        return "127.0.0.1"

    def exec(self, host: str, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
        """Starts `argv` on `host` in a process group of its own; ended when the testbed closes."""
        process = subprocess.Popen([*self._prefix(host), *argv], **OWN_GROUP, **popen)
        self._processes.append(process)
        return process

    def _prefix(self, host: str) -> list[str]:
        if host not in self.names:
            raise KeyError(host)
        return []

    def close(self) -> None:
        """Ends every process started with `exec`."""
        for process in self._processes:
            stop_process(process)
        self._processes.clear()

    def __enter__(self) -> Hosts:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Testbed(Hosts):
    """One namespace a host, each behind its own link to one bridge; a context manager.

    Both ends of a link are limited, so `bandwidth_bps` holds in either direction at once, as on a
    switched full-duplex network. Interfaces are made inside the namespaces and never appear in the
    machine's own network. SIGTERM ends the program through its context managers while one is open.
    """

    __test__ = False  # the name only looks like a test class

    def __init__(self, names: Sequence[str], bandwidth_bps: float | None = None) -> None:
        super().__init__(names)
        if len(names) > 200:
            raise BenchError(f"{len(names)} hosts are too many for one testbed: use at most 200")
        self._bandwidth_bps = bandwidth_bps
        self._prefix_name = f"tfs{os.getpid()}-{next(_serials)}-"
        self._made: list[str] = []
        self._old_handler: Any = None
        self._owner = os.getpid()

    def namespace(self, host: str) -> str:
        """The name of a host's namespace."""
        return self._prefix_name + host

    def address(self, host: str) -> str:
        return f"{_NETWORK.rpartition('.')[0]}.{self.names.index(host) + 1}"

    def _prefix(self, host: str) -> list[str]:
        super()._prefix(host)
        return ["ip", "netns", "exec", self.namespace(host)]

    def __enter__(self) -> Testbed:
        remove_stale()
        atexit.register(self.close)
        if threading.current_thread() is threading.main_thread():
            self._old_handler = signal.signal(signal.SIGTERM, _exit_on_signal)
        try:
            bridge = self._add_namespace("br")
            _call("ip", "-n", bridge, "link", "add", "br0", "type", "bridge")
            _call("ip", "-n", bridge, "link", "set", "br0", "up")
            for host in self.names:
                self._connect(host, bridge)
        except BaseException:
            self.close()
            raise
        return self

    def _add_namespace(self, suffix: str) -> str:
        name = self._prefix_name + suffix
        self._made.append(name)  # first, so that an interrupt in between still removes it
        _call("ip", "netns", "add", name)
        _call("ip", "-n", name, "link", "set", "lo", "up")
        return name

    def _connect(self, host: str, bridge: str) -> None:
        name = self._add_namespace(host)
        port = f"port{self.names.index(host)}"
        _call(
            *("ip", "-n", name, "link", "add", "eth0", "type", "veth"),
            *("peer", "name", port, "netns", bridge),
        )
        _call("ip", "-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        _call("ip", "-n", bridge, "link", "set", port, "master", "br0")
        if self._bandwidth_bps is not None:
            self.limit(host, self._bandwidth_bps)
        for namespace, device in ((name, "eth0"), (bridge, port)):
            _call("ip", "-n", namespace, "link", "set", device, "up")
        if (control := congestion_control()) is not None:
            # By route: a namespace may not set another default than the machine allows.
            _call(
                *("ip", "-n", name, "route", "replace", _NETWORK, "dev", "eth0", "proto", "kernel", "scope", "link"),
                *("src", self.address(host), "congctl", control),
            )

    def limit(self, host: str, bandwidth_bps: float) -> None:
        """Gives a host's link another bandwidth in either direction, also while bytes are on it."""
        ends = ((self.namespace(host), "eth0"), (self.namespace("br"), f"port{self.names.index(host)}"))
        for namespace, device in ends:
            _call(
                *("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf"),
                *("rate", f"{int(bandwidth_bps)}bit"),
                *("burst", f"{_burst_bytes(bandwidth_bps)}", "latency", "50ms"),
            )

    def receive_on(self, cores: Iterable[int]) -> None:
        """Has these cores process what arrives at any end of a link, where the kernel can (receive packet steering).

        Else the kernel goes on with a packet on whichever core sent it: one request from a computing thread, and the
        network's work may stay on that thread's core for the rest of a step.
        """
        mask = core_mask(cores)
        for number, host in enumerate(self.names):
            for suffix, device in ((host, "eth0"), ("br", f"port{number}")):
                path = f"/sys/class/net/{device}/queues/rx-0/rps_cpus"
                with contextlib.suppress(BenchError):
                    _call("ip", "netns", "exec", self._prefix_name + suffix, "sh", "-c", f"echo {mask} > {path}")

    def close(self) -> None:
        """Ends the processes and removes the namespaces; may be called more than once."""
        if os.getpid() != self._owner:  # a forked child must not take its parent's network away
            return
        try:
            with _signals_later():
                super().close()
                while self._made:
                    _remove(self._made[-1])  # stays listed until it is gone, should an error interrupt this
                    self._made.pop()
                atexit.unregister(self.close)
        finally:
            if self._old_handler is not None:
                signal.signal(signal.SIGTERM, self._old_handler)
                self._old_handler = None


@contextlib.contextmanager
def _signals_later() -> Iterator[None]:
    """Has Ctrl-C and SIGTERM wait for the end of the block: who is impatient sends more than one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda number, frame: came.append(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)


def _remove(name: str) -> None:
    # Where its making was interrupted there is nothing to remove.
    with contextlib.suppress(BenchError):
        _call("ip", "netns", "del", name)


def remove_stale() -> None:
    """Removes namespaces whose owner was killed before it could do so itself."""
    for line in _call("ip", "netns", "list").splitlines():
        match = _NAME.match(line)
        if match and not os.path.exists(f"/proc/{match.group(1)}"):
            _remove(line.split()[0])


def netns_available() -> tuple[bool, str]:
    """Whether limited namespaces can be made here; if not, a sentence saying why."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return False, "network namespaces need root: run as root or use --link emulated"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return False, f"`{tool}` is not installed: apt install iproute2"
    try:
        with Testbed(["probe"], bandwidth_bps=1e9):
            pass
    except BenchError as error:
        return False, str(error)
    return True, "network namespaces with limited links work"


def wait_until(condition: Any, timeout_s: float, poll_s: float = 0.05) -> bool:
    """Polls `condition()` until it holds; False once `timeout_s` have passed."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(poll_s)
    return True
