"""The samples of each setting, and the test that says whether one setting is faster than another."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from .space import Setting

# Clocks do not tell smaller relative differences apart; without it, rounding would decide among samples without noise.
LEAST_NOISE = 1e-6
# A sample that is slower than its setting's median by more than so many standard deviations is a hiccup: a checkpoint
# that is written, another program on the machine. It counts as this much slower, or one would hide all that tuning can gain.
_HICCUP = 4.0
# The standard deviation of normal noise, in medians of its distance from the centre.
_DEVIATIONS = 1.4826


class Samples:
    """Seconds of steps, by setting. All arithmetic is with their logarithms: noise is taken to be relative.

    Steps have hiccups: samples far above their setting's median count as less than they took.
    """

    def __init__(self) -> None:
        self._measured: dict[Setting, list[float]] = {}
        self._log_s: dict[Setting, list[float]] = {}

    def add(self, setting: Setting, seconds: float) -> None:
        self._measured.setdefault(setting, []).append(math.log(seconds))
        distances = [
            x - centre for values in self._measured.values() for centre, *others in [_median_first(values)] for x in others
        ]
        fence = _HICCUP * _DEVIATIONS * statistics.median(map(abs, distances)) if distances else math.inf
        self._log_s = {
            setting: [min(x, _median_first(values)[0] + fence) for x in values] for setting, values in self._measured.items()
        }

    @property
    def settings(self) -> list[Setting]:
        """In the order in which they were first measured."""
        return list(self._log_s)

    def count(self, setting: Setting) -> int:
        return len(self._log_s.get(setting, ()))

    def of(self, setting: Setting) -> list[float]:
        """The logarithms of its seconds, in the order in which they were measured, without hiccups."""
        return list(self._log_s.get(setting, ()))

    def hiccups(self, setting: Setting | None = None) -> int:
        """How many samples of a setting, or of all, count as less than they took."""
        those = self.settings if setting is None else [setting]
        return sum(a < b for one in those for a, b in zip(self._log_s[one], self._measured[one], strict=True))

    def p_value_of_hiccups(self, setting: Setting, other: Setting) -> float:
        """How likely a setting would have as many of all hiccups of both, if both had them as often.

        Fisher's exact test, one-sided.
        """
        mine, count = self.hiccups(setting), self.count(setting)
        both, all_samples = mine + self.hiccups(other), count + self.count(other)
        ways = sum(math.comb(both, n) * math.comb(all_samples - both, count - n) for n in range(mine, min(both, count) + 1))
        return ways / math.comb(all_samples, count)

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


def _median_first(values: Sequence[float]) -> list[float]:
    """The lower median, then the others. Hiccups only make slower, so the lower one of two is nearer to the truth."""
    others = sorted(values)
    return [others.pop((len(others) - 1) // 2), *others]


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
