"""What a tuner goes by, and what it says at its end."""

from __future__ import annotations

import dataclasses
import math

from tfsched.errors import TfschedError

from .space import Setting


@dataclasses.dataclass(frozen=True)
class Rules:
    """When a tuner measures again, decides and stops.

    Attributes:
      budget: samples in all, at most.
      first_samples: of the first setting before anything else, which tell how large the noise is.
      most_samples: of each of two settings that are compared during the search.
      level: probability of error of each comparison during the search.
      least_gain: a setting that is not faster by this part is not worth more samples.
      least_expected: a search that expects less than this part of any setting expects nothing.
      proposals: after so many proposals in a row of which that is true the search ends.
      confirm: fresh samples of both the best and the first setting, after each of which the last test is made.
      confirm_level: probability that the last test prefers a setting that is no faster, over all of its looks together.
    """

    budget: int = 100
    first_samples: int = 4
    most_samples: int = 8
    level: float = 0.05
    least_gain: float = 0.01
    least_expected: float = 0.005
    proposals: int = 5
    confirm: tuple[int, ...] = (4, 8, 16)
    confirm_level: float = 0.01

    def __post_init__(self) -> None:
        least = self.first_samples + 1 + 2 * self.confirm[0]
        if self.budget < least:
            raise TfschedError(f"The budget is {self.budget} samples; give {least} or more, or nothing can be decided.")

    @property
    def reserve(self) -> int:
        """Samples that the search leaves for the last test: all its looks, but no more than a third of the budget."""
        return max(2 * self.confirm[0], min(2 * self.confirm[-1], self.budget // 3))

    @property
    def least_log_gain(self) -> float:
        """`least_gain` as a difference of log seconds."""
        return -math.log1p(-self.least_gain)


@dataclasses.dataclass(frozen=True)
class Decision:
    """What a tuner decided.

    Attributes:
      setting: the one to use.
      first: the one that it began with.
      seconds, first_seconds: geometric means of their samples.
      gain: by which part of the first setting's time `setting` is faster, by the samples of the last test; 0 for the first.
      samples: taken in all.
      settings: measured in all.
      reason: one sentence, what was decided and why.
    """

    setting: Setting
    first: Setting
    seconds: float
    first_seconds: float
    gain: float
    samples: int
    settings: int
    reason: str

    @property
    def changed(self) -> bool:
        """Whether it is not the first setting."""
        return self.setting != self.first
