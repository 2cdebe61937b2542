"""Steps whose times are known: a bowl over partition and credit, with noise that a seed draws."""

from __future__ import annotations

import math

import numpy as np

from tfsched.tuning import Setting, Space

SPACE = Space(policies=("bytescheduler", "p3"))
FIRST = Setting(8_000_000, 20_000_000, "bytescheduler")
BOTTOM_S = 0.5


def bowl(setting: Setting) -> float:
    """Seconds of a step: least at 800 kB and 2 MB under bytescheduler, and 9 % more for a factor of two beside it."""
    if setting.policy == "p3":
        return 1.4 * BOTTOM_S
    beside = math.log2(setting.partition_bytes / 800_000), math.log2(setting.credit_bytes / 2_000_000)
    return BOTTOM_S * (1 + 0.09 * (beside[0] ** 2 + 0.5 * beside[1] ** 2))


def flat(setting: Setting) -> float:
    """The same for all."""
    return BOTTOM_S


class Measured:
    """Samples of `seconds_of` under relative noise, and what was asked for."""

    def __init__(self, seconds_of, noise: float, seed: int):
        self._seconds_of, self._noise, self._random = seconds_of, noise, np.random.default_rng(seed)
        self.samples: list[tuple[Setting, float]] = []

    def __call__(self, setting: Setting, samples: int) -> list[float]:
        factors = 1 + self._noise * np.clip(self._random.standard_normal(samples), -3, 3)
        seconds = [self._seconds_of(setting) * float(factor) for factor in factors]
        self.samples += [(setting, one) for one in seconds]
        return seconds
