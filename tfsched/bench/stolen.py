"""Tells what the machine's neighbours take: time in which its host ran others while a processor of ours had work (steal)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

CALM_SHARE = 0.01
"""A step in which no more than this share of its time was taken, all cores together, counts as calm."""

_FEW = 5  # fewer calm steps have no 95th percentile worth printing
_STEAL = 8  # user nice system idle iowait irq softirq steal


def stolen_s(cores: Iterable[int] | None = None, stat: str = "/proc/stat") -> float:
    """Seconds taken so far from the cores that this process may use, summed; 0 where the kernel does not tell.

    The kernel counts in ticks, of 10 ms on most.
    """
    wanted = {f"cpu{core}" for core in (os.sched_getaffinity(0) if cores is None else cores)}
    try:
        with open(stat, encoding="ascii") as file:
            rows = [line.split() for line in file if line.startswith("cpu")]
    except OSError:
        return 0.0
    ticks = sum(int(row[_STEAL]) for row in rows if row[0] in wanted and len(row) > _STEAL)
    return ticks / float(os.sysconf("SC_CLK_TCK"))


def calm_steps(steps_s: Sequence[float], taken_s: Sequence[float]) -> list[float]:
    """The steps of which neighbours took at most CALM_SHARE; `taken_s` has one entry a step, in seconds."""
    return [step_s for step_s, lost_s in zip(steps_s, taken_s, strict=True) if lost_s <= CALM_SHARE * step_s]


def calm_spread(steps_s: Sequence[float], taken_s: Sequence[float]) -> float | None:
    """p95/p50 of the calm steps; None if they are fewer than 5."""
    calm = calm_steps(steps_s, taken_s)
    return float(np.percentile(calm, 95) / np.median(calm)) if len(calm) >= _FEW else None


def note(settings: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A sentence on the neighbours, if they took more than CALM_SHARE of any setting's time; `settings` as in a result."""
    shares = {name: sum(row["stolen_s"]) / sum(row["steps_s"]) for name, row in settings.items()}
    if max(shares.values(), default=0.0) <= CALM_SHARE:
        return []
    parts = []
    for name, row in settings.items():
        calm, all_ = len(calm_steps(row["steps_s"], row["stolen_s"])), len(row["steps_s"])
        spread = "" if row["p95_over_p50_calm"] is None else f", p95/p50 {row['p95_over_p50_calm']:.3f}"
        parts.append(f"{name} {shares[name]:.1%} ({calm} of {all_} steps calm{spread})")
    return [
        "the machine's host gave processor time to others meanwhile, of the time of "
        + "; ".join(parts)
        + f". Calm is a step that lost at most {CALM_SHARE:.0%}"
    ]
