"""What is searched: partition and credit on a logarithmic scale between bounds, rounded, and the policy as a category."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfsched._rules import MIN_PARTITION_BYTES, POLICIES
from tfsched.errors import TfschedError

# ISO 3, series R10 as rounded there: ten values a decade, each a quarter larger than the one before.
_PREFERRED = (1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.3, 8.0)

# Policies that do not look at the credit (docs/policies.md); their settings all have the value nearest to this one.
WITHOUT_CREDIT = ("fifo", "p3")
_ANY_CREDIT_BYTES = 1_000_000

_MOST_BYTES = 2**40


class Setting(NamedTuple):
    """What is tuned. 0 bytes mean as in `tfsched.Options`: never cut, no limit of the credit."""

    partition_bytes: int
    credit_bytes: int
    policy: str

    def __str__(self) -> str:
        pieces = f"pieces of {bytes_text(self.partition_bytes)}" if self.partition_bytes else "whole tensors"
        if self.policy in WITHOUT_CREDIT:
            return f"{self.policy} with {pieces}"
        credit = f"a credit of {bytes_text(self.credit_bytes)}" if self.credit_bytes else "no limit of credit"
        return f"{self.policy} with {pieces} and {credit}"


def bytes_text(size: int) -> str:
    """Bytes for people, exact: "500 kB", "1.25 MB"."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor and size * 1000 % factor == 0:
            return f"{size / factor:.12g} {unit}"
    return f"{size} B"


def preferred(low: int, high: int) -> tuple[int, ...]:
    """The bounds and the preferred numbers between them, ascending."""
    if low == high:
        return (low,)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    between = {round(step * 10**decade) for decade in decades for step in _PREFERRED}
    # What is hardly more or less than a bound would be measured for nothing.
    return tuple(sorted({low, high} | {value for value in between if 1.1 * low < value < high / 1.1}))


def spaced(values: Sequence[int], count: int) -> tuple[int, ...]:
    """At most `count` of the values, from the first to the last, as evenly as their places allow."""
    places = np.linspace(0, len(values) - 1, min(count, len(values)))
    return tuple(values[place] for place in dict.fromkeys(np.rint(places).astype(int).tolist()))


@dataclasses.dataclass(frozen=True)
class Space:
    """The settings that a search may propose.

    Attributes:
      partition_bytes: (least, most); the values are the two and the preferred numbers between them. (0, 0): whole tensors.
      credit_bytes: likewise. A policy that does not look at the credit has one value of it.
      policies: of tfsched._rules.POLICIES.

    Raises TfschedError for a value that is not one of these.
    """

    partition_bytes: tuple[int, int] = (100_000, 64_000_000)
    credit_bytes: tuple[int, int] = (100_000, 128_000_000)
    policies: tuple[str, ...] = POLICIES

    def __post_init__(self) -> None:
        for name, least in (("partition_bytes", MIN_PARTITION_BYTES), ("credit_bytes", 1)):
            bounds = getattr(self, name)
            whole = all(isinstance(value, int) and not isinstance(value, bool) for value in bounds)
            never_cut = name == "partition_bytes" and tuple(bounds) == (0, 0)
            if not (whole and len(bounds) == 2 and (never_cut or least <= bounds[0] <= bounds[1] <= _MOST_BYTES)):
                raise TfschedError(
                    f"The bounds of {name} are {', '.join(map(str, bounds))}; give the least and the most bytes, "
                    f"whole numbers from {least} to {_MOST_BYTES}."
                )
        if not self.policies or len(set(self.policies)) < len(self.policies) or not set(self.policies) <= set(POLICIES):
            raise TfschedError(
                f"The policies to search are {', '.join(self.policies) or 'none'}; give each once, of {', '.join(POLICIES)}."
            )

    @functools.cached_property
    def partitions(self) -> tuple[int, ...]:
        """The values of partition_bytes, ascending."""
        return preferred(*self.partition_bytes)

    @functools.cached_property
    def credits(self) -> tuple[int, ...]:
        """The values of credit_bytes, ascending."""
        return preferred(*self.credit_bytes)

    @functools.cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Every setting of the space, once."""
        return self.product(self.partitions, self.credits)

    def product(self, partitions: Sequence[int], credits: Sequence[int]) -> tuple[Setting, ...]:
        """The settings of all policies with these values."""
        return tuple(
            Setting(partition, credit, policy)
            for policy in self.policies
            for partition in partitions
            for credit in ((self._any_credit,) if policy in WITHOUT_CREDIT else credits)
        )

    def nearest(self, setting: Setting) -> Setting | None:
        """The setting of the same policy that is nearest on the logarithmic scale; None if the space lacks the policy."""
        if setting.policy not in self.policies:
            return None
        credit = self._any_credit if setting.policy in WITHOUT_CREDIT else _nearest(self.credits, setting.credit_bytes)
        return Setting(_nearest(self.partitions, setting.partition_bytes), credit, setting.policy)

    def encode(self, settings: Sequence[Setting]) -> np.ndarray:
        """[settings, dimensions]: log of partition and of credit from 0 to 1, and a column a policy if there are several.

        Any two policies are as far apart as the least and the most bytes.
        A setting outside of the bounds counts as the nearest bound; whole tensors and no limit as the largest.
        """
        columns = [
            [_place(setting.partition_bytes, self.partition_bytes) for setting in settings],
            [_place(setting.credit_bytes, self.credit_bytes) for setting in settings],
        ]
        if len(self.policies) > 1:
            columns += [[math.sqrt(0.5) * (setting.policy == policy) for setting in settings] for policy in self.policies]
        return np.array(columns).T

    @property
    def _any_credit(self) -> int:
        return _nearest(self.credits, _ANY_CREDIT_BYTES)


def _nearest(values: Sequence[int], wanted: int) -> int:
    if wanted <= 0 or len(values) == 1:
        return values[-1]
    return min(values, key=lambda value: abs(math.log(value / wanted)))


def _place(value: int, bounds: tuple[int, int]) -> float:
    low, high = bounds
    if value <= 0 or value >= high:
        return 1.0
    return math.log(value / low) / math.log(high / low) if value > low else 0.0
