"""Tensor fusion: a chain of transfers cut into groups whose smallest is as large as possible (PACE, Algorithm 1)."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from .jackson import Job, MachineSchedule, preemptive_schedule

# Up to here every number of groups is tried and cut as printed; beyond, a coarse pass and a fine one around its best.
ALL_COUNTS_UP_TO = 256


class MaxMinSize:
    """Chains cut into adjacent groups whose smallest is as large as possible, for every number of groups.

    PACE (Bao et al., INFOCOM'20), Algorithm 1, lines 11-23: of the prefixes that leave the largest smallest group, the first
    group is the shortest (line 20 keeps the first that is better); the rest is cut in the same way. Sizes are whole numbers
    of zero or more. O(N) for each number of groups: what remains for the rest only shrinks as a prefix grows, so the best
    prefix is where the two cross. Where only 0 can be reached the printed function returns no groups; here the first groups
    have one member each.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.prefix = list(itertools.accumulate(sizes, initial=0))
        self.count = len(sizes)
        # Of the last so many groups: where they start -> the largest smallest one.
        self.smallest = [self.prefix[-1] - before for before in self.prefix]
        self.first_ends: list[list[int]] = [[self.count] * self.count]  # [groups - 1][start]

    def ends(self, groups: int) -> list[int]:
        """Return the end (exclusive) of each of `groups` groups; needs 1 <= groups <= the number of sizes."""
        while len(self.first_ends) < groups:
            self._next()
        result, start = [], 0
        for left in range(groups - 1, -1, -1):
            start = self.first_ends[left][start]
            result.append(start)
        return result

    def _next(self) -> None:
        """Add one to the number of groups."""
        prefix, rest = self.prefix, self.smallest
        last = self.count - len(self.first_ends)  # the longest prefix ends here
        smallest, first_ends = [], []
        crossing = 1
        for start in range(last):
            crossing = max(crossing, start + 1)
            while crossing <= last and prefix[crossing] - prefix[start] < rest[crossing]:
                crossing += 1
            best = rest[crossing] if crossing <= last else 0
            if crossing > start + 1:
                best = max(best, prefix[crossing - 1] - prefix[start])
            smallest.append(best)
            first_ends.append(bisect.bisect_left(prefix, prefix[start] + best, start + 1))
        self.smallest = smallest
        self.first_ends.append(first_ends)


def long_chain_ends(sizes: Sequence[int], groups: int) -> list[int]:
    """Return ends as `MaxMinSize` does, with the same smallest group, in less memory; each group but the last is short.

    The answer is searched among whole numbers: a size is reachable iff taking each group as short as it allows gives
    `groups` or more, O(R log N log sum).
    """
    prefix = list(itertools.accumulate(sizes, initial=0))
    total = prefix[-1]

    def cut(threshold: int) -> list[int] | None:
        ends: list[int] = []
        start = 0
        for k in range(groups - 1):
            end = max(bisect.bisect_left(prefix, prefix[start] + threshold), start + 1)
            if end > len(sizes) - (groups - 1 - k):
                return None
            ends.append(end)
            start = end
        return [*ends, len(sizes)] if total - prefix[start] >= threshold else None

    low, high = 0, total // groups
    best = cut(0)
    assert best is not None
    while low < high:
        middle = (low + high + 1) // 2
        found = cut(middle)
        if found is None:
            high = middle - 1
        else:
            low, best = middle, found
    return best


class Tensor(NamedTuple):
    """A transfer as fusion sees it: times in whole units, with the start-up apart from the time of the bytes."""

    release: int
    startup: int
    wire: int
    tail: int
    size_bytes: int


class Fusion(NamedTuple):
    """The chosen groups (positions of tensors), the job that each became, and their optimal schedule."""

    groups: list[tuple[int, ...]]
    jobs: list[Job]
    schedule: MachineSchedule


def fuse(tensors: Sequence[Tensor], others: Sequence[Job] = (), counts: Sequence[int] | None = None) -> Fusion:
    """Return the best max-min partition of the tensors over all numbers of groups (PACE, Algorithm 1).

    The chain is sorted by release (ties: the larger tail first). A group is released with its last tensor, needs one
    start-up and the sum of the bytes' times, and has the largest tail. Each number of groups R is scored by the optimal
    preemptive schedule of its jobs together with `others`, which are never fused; ties go to the smaller R (lines 3, 7).
    Two differences from the paper: without start-up, where no fusion can help, nothing is fused; and more than 256 tensors
    are cut by `long_chain_ends`, for numbers of groups that `_coarse_to_fine` picks. `counts` replaces 1..N.
    """
    chain = sorted(range(len(tensors)), key=lambda i: (tensors[i].release, -tensors[i].tail, i))
    sizes = [tensors[i].size_bytes for i in chain]
    short = MaxMinSize(sizes) if len(sizes) <= ALL_COUNTS_UP_TO else None

    def score(count: int) -> Fusion:
        ends = short.ends(count) if short else long_chain_ends(sizes, count)
        groups = [tuple(chain[a:b]) for a, b in itertools.pairwise([0, *ends])]
        jobs = [_job([tensors[i] for i in group]) for group in groups]
        return Fusion(groups, jobs, preemptive_schedule([*jobs, *others]))

    number = len(tensors)
    if number == 0:
        return Fusion([], [], preemptive_schedule(others))
    if counts is None and not any(tensor.startup for tensor in tensors):
        counts = [number]
    if counts is None and number > ALL_COUNTS_UP_TO:
        return _coarse_to_fine(score, number)
    return _best(map(score, counts if counts is not None else range(1, number + 1)))


def _job(members: Sequence[Tensor]) -> Job:
    return Job(
        max(t.release for t in members),
        max(t.startup for t in members) + sum(t.wire for t in members),
        max(t.tail for t in members),
    )


def _best(fusions: Iterator[Fusion]) -> Fusion:
    best = next(fusions)
    for fusion in fusions:
        if fusion.schedule.makespan < best.schedule.makespan:
            best = fusion
    return best


def _coarse_to_fine(score: Callable[[int], Fusion], number: int) -> Fusion:
    """The paper suggests a stochastic search where N is large; this is a deterministic one of about 128 scores, then 48."""
    points = 64 if number <= 2_000 else 24
    coarse = sorted({1 + round((number - 1) * (k / (points - 1)) ** 2) for k in range(points)})
    best = _best(map(score, coarse))
    place = coarse.index(len(best.groups))
    low = coarse[max(place - 1, 0)]
    high = coarse[min(place + 1, len(coarse) - 1)]
    step = max(1, (high - low) // points)
    return _best(map(score, sorted({len(best.groups), *range(low, high + 1, step)})))
