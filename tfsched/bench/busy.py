"""Tells whether a setting keeps the networking's processors busy: on one machine they may be slower than its links."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

FULL_SHARE = 0.85
"""Cores that are busy for this share of a block, in the mean, leave the links waiting at times."""

_IDLE = (4, 5)  # user nice system idle iowait irq softirq steal, behind the core's name
_COUNTED = slice(1, 9)  # guests are in user already


def busy_s(cores: Collection[int], stat: str = "/proc/stat") -> float:
    """Seconds in which these cores had work so far, the mean of the cores; 0 where the kernel does not tell.

    What the machine's host gave to others counts as busy: the core was not to be had.
    """
    wanted = {f"cpu{core}" for core in cores}
    try:
        with open(stat, encoding="ascii") as file:
            rows = [line.split() for line in file if line.startswith("cpu")]
    except OSError:
        return 0.0
    ticks = sum(sum(map(int, row[_COUNTED])) - sum(int(row[place]) for place in _IDLE) for row in rows if row[0] in wanted)
    return ticks / float(os.sysconf("SC_CLK_TCK")) / max(len(cores), 1)


def note(settings: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """On the settings whose networking kept its cores busy for FULL_SHARE of a block; `settings` as in a result."""
    shares = {name: row.get("networking_busy") or 0.0 for name, row in settings.items()}
    full = {name: share for name, share in shares.items() if share >= FULL_SHARE}
    if not full:
        return []
    parts = ", ".join(f"{name} {share:.0%}" for name, share in full.items())
    return [
        f"the cores that do the networking were busy nearly all the time ({parts}): these steps wait for processors, "
        "which predictions and the link's bound do not count; give a lower --bandwidth"
    ]
