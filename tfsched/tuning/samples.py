"""The samples of each setting, and the test that says whether one setting is faster than another."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .space import Setting

# Clocks do not tell smaller relative differences apart; without it, rounding would decide among samples without noise.
LEAST_NOISE = 1e-6


class Samples:
    """Seconds of steps, by setting. All arithmetic is with their logarithms: noise is taken to be relative."""

    def __init__(self) -> None:
        self._log_s: dict[Setting, list[float]] = {}

    def add(self, setting: Setting, seconds: float) -> None:
        self._log_s.setdefault(setting, []).append(math.log(seconds))

    @property
    def settings(self) -> list[Setting]:
        """In the order in which they were first measured."""
        return list(self._log_s)

    def count(self, setting: Setting) -> int:
        return len(self._log_s.get(setting, ()))

    def of(self, setting: Setting) -> list[float]:
        """The logarithms of its seconds, in the order in which they were measured."""
        return list(self._log_s.get(setting, ()))

    def log_mean(self, setting: Setting) -> float:
        return mean(self._log_s[setting])

    def seconds(self, setting: Setting) -> float:
        """The geometric mean."""
        return math.exp(self.log_mean(setting))

    def noise(self) -> tuple[float, int]:
        """The standard deviation of log seconds, pooled over all settings, and its degrees of freedom.

        Pooled, for a setting that is measured once or twice says nothing of its own noise.
        """
        freedom = sum(len(values) - 1 for values in self._log_s.values())
        squares = math.fsum((x - mean(values)) ** 2 for values in self._log_s.values() for x in values)
        return (max(math.sqrt(squares / freedom), LEAST_NOISE) if freedom else 0.0), freedom

    def p_value(self, gain: float, count: int, other_count: int) -> float:
        """How likely two settings that are alike would differ by at least `gain` in the means of so many samples of each.

        A one-sided two-sample t-test with `noise()`; 1.0 while nothing was measured twice.
        """
        from scipy.special import stdtr

        deviation, freedom = self.noise()
        if not freedom or not count or not other_count:
            return 1.0
        return float(stdtr(freedom, -gain / (deviation * math.sqrt(1 / count + 1 / other_count))))


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
