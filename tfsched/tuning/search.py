"""What a search is: it proposes settings and is told what they took. The strategies have a file each."""

from __future__ import annotations

import abc
from typing import NamedTuple

from .space import Setting


class Proposal(NamedTuple):
    """A setting that should be measured.

    `why` is for the log. `expected_gain`, where a strategy can say so, is the most that it expects of any setting that was
    not measured: by which part of the best one's time it is faster.
    """

    setting: Setting
    why: str
    expected_gain: float | None = None


class Search(abc.ABC):
    """Proposes settings of a space: none twice, and none that it was told of.

    What it proposes depends on nothing but its seed and what it was told, in that order.
    """

    @abc.abstractmethod
    def ask(self) -> Proposal | None:
        """What to measure next; None when nothing is left."""

    @abc.abstractmethod
    def tell(self, setting: Setting, seconds: float) -> None:
        """One sample: a step under `setting`, which may be one that was not proposed, took `seconds`, above zero."""


class ListedSearch(Search):
    """Proposes what is on a list, whatever it is told."""

    def __init__(self, settings: list[Setting], why: str):
        self._left = settings[::-1]
        self._why = why
        self._measured: set[Setting] = set()

    def ask(self) -> Proposal | None:
        while self._left:
            setting = self._left.pop()
            if setting not in self._measured:
                return Proposal(setting, self._why)
        return None

    def tell(self, setting: Setting, seconds: float) -> None:
        self._measured.add(setting)
