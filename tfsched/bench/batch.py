"""Finds the batch size at which computing takes nearly as long as communicating."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

TOLERANCE = 0.10
# What is aimed at, as a part of the communication's time. Where the two meet, chance decides which is longer in a step; one
# that the network bounds is the clean case.
AIM = 0.95
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
    """Searches the batch whose compute time is just below `target_s`, and stops at the first that is near.

    Near is within 10% of `target_s` and of what is aimed at, 0.95 of it: 0.9 to 1.045 times `target_s`.

    Args:
        measure: seconds of one step of computing alone at a batch size.
        target_s: seconds of one step of communicating alone.
        start: first size tried.
        attempts: most sizes tried.
        largest: cap on the batch, since memory grows with it.
    """
    aim_s = AIM * target_s
    measured: dict[int, float] = {}
    batch = max(1, min(start, largest))
    for _ in range(attempts):
        measured[batch] = measure(batch)
        if _near(measured[batch], target_s) and _near(measured[batch], aim_s):
            break
        # One point says little about the slope: never jump by more than eight times.
        batch = min(predict(measured, aim_s, largest), batch * 8)
        if batch in measured:
            break
    best = min(measured, key=lambda size: abs(measured[size] - aim_s))
    return BatchFit(best, measured[best], _near(measured[best], target_s), measured)


def _near(time_s: float, target_s: float) -> bool:
    return abs(time_s / target_s - 1) <= TOLERANCE
