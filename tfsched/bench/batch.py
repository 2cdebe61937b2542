"""Finds the batch size at which computing takes as long as communicating."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

TOLERANCE = 0.10
LARGEST = 4096


@dataclasses.dataclass(frozen=True)
class BatchFit:
    """The batch found, the compute time there, and whether it is within the tolerance."""

    batch: int
    compute_s: float
    within: bool
    measured: dict[int, float]


def predict(measured: dict[int, float], target_s: float, largest: int = LARGEST) -> int:
    """The batch at which a line through the measured (batch, seconds) points meets `target_s`."""
    sizes = np.array(sorted(measured), dtype=float)
    times_s = np.array([measured[int(size)] for size in sizes])
    slope_s, constant_s = (times_s[-1] / sizes[-1], 0.0)
    if len(sizes) > 1:
        # The times nearest to the target describe the neighbourhood that matters.
        weights = 1.0 / (np.abs(times_s - target_s) + 0.05 * target_s)
        fitted_slope_s, fitted_constant_s = np.polyfit(sizes, times_s, 1, w=weights)
        if fitted_slope_s > 0:
            slope_s, constant_s = fitted_slope_s, fitted_constant_s
    wanted = (target_s - constant_s) / max(slope_s, 1e-9)
    return int(np.clip(round(wanted), 1, largest))


def find_batch(
    measure: Callable[[int], float],
    target_s: float,
    start: int = 4,
    attempts: int = 6,
    largest: int = LARGEST,
) -> BatchFit:
    """Searches the batch whose compute time is within 10% of `target_s`.

    Args:
        measure: seconds of one step of computing alone at a batch size.
        target_s: seconds of one step of communicating alone.
        start: first size tried.
        attempts: most sizes tried.
        largest: cap on the batch, since memory grows with it.
    """
    measured: dict[int, float] = {}
    batch = max(1, min(start, largest))
    for _ in range(attempts):
        measured[batch] = measure(batch)
        if abs(measured[batch] / target_s - 1) <= TOLERANCE / 2:
            break
        # One point says little about the slope: never jump by more than eight times.
        batch = min(predict(measured, target_s, largest), batch * 8)
        if batch in measured:
            break
    best = min(measured, key=lambda size: abs(measured[size] - target_s))
    compute_s = measured[best]
    return BatchFit(best, compute_s, abs(compute_s / target_s - 1) <= TOLERANCE, measured)
