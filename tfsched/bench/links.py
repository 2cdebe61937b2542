"""Parses bandwidths and chooses how a run's links are limited."""

from __future__ import annotations

import dataclasses
import math
import re

from tfsched.bench import testbed
from tfsched.bench.errors import BenchError
from tfsched.ops import library

KINDS = ("auto", "netns", "emulated", "none")
REAL = "real"

_UNITS = {"": 1.0, "bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}
_BANDWIDTH = re.compile(r"^([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)$")


@dataclasses.dataclass(frozen=True)
class Link:
    """How tasks are connected: `kind` is netns, emulated, none or REAL; no `bandwidth_bps` = no limit, or an unknown one."""

    kind: str
    bandwidth_bps: float | None
    notes: tuple[str, ...] = ()


def parse_bandwidth(text: str | float) -> float | None:
    """Bits per second of "1gbit", "400mbit", "1e9"; None for "unlimited" and "0"."""
    lowered = str(text).strip().lower()
    if lowered in ("unlimited", "none"):
        return None
    match = _BANDWIDTH.match(lowered)
    if match is None or match.group(2) not in _UNITS:
        raise BenchError(
            f"bandwidth {text!r} is not understood: write it as 1gbit, 400mbit, 1e9 (bits per second) or unlimited"
        )
    bandwidth_bps = float(match.group(1)) * _UNITS[match.group(2)]
    if bandwidth_bps == 0:
        return None
    if not math.isfinite(bandwidth_bps) or bandwidth_bps < 1e4:
        raise BenchError(f"bandwidth {text!r} is {bandwidth_bps:g} bit/s: give at least 10kbit, or unlimited")
    return bandwidth_bps


def format_bandwidth(bandwidth_bps: float | None) -> str:
    """The shortest readable form, e.g. "1 Gbit/s"."""
    if bandwidth_bps is None:
        return "unlimited"
    for unit, size in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bandwidth_bps >= size:
            return f"{bandwidth_bps / size:g} {unit}"
    return f"{bandwidth_bps:g} bit/s"


def choose_link(kind: str, bandwidth_bps: float | None) -> Link:
    """Turns `--link` into a link that works here, with the notes that a reader must see."""
    if kind not in KINDS:
        raise BenchError(f"link {kind!r} is unknown: choose one of {', '.join(KINDS)}")
    if kind == "none":
        return Link("none", None, ("all tasks on loopback, nothing limits the transfers",))
    if kind in ("auto", "netns"):
        available, reason = testbed.netns_available()
        if available:
            return Link("netns", bandwidth_bps)
        if kind == "netns":
            raise BenchError(f"link 'netns' cannot be used here: {reason}")
        if bandwidth_bps is None:
            return Link("none", None, (f"all tasks on loopback: {reason}",))
    else:
        reason = "asked for with --link emulated"
        if bandwidth_bps is None:
            raise BenchError("link 'emulated' needs a bandwidth: give --bandwidth, or --link none")
    if not library.library_path().exists():
        raise BenchError("link 'emulated' needs the native library of tfsched: install it with pip install .")
    return Link(
        "emulated",
        bandwidth_bps,
        (
            f"EMULATED LINK ({reason}): all tasks on loopback, transfers are paced inside the "
            "sender; vanilla runs on tfsched's server with no ordering and first in, first out",
        ),
    )
