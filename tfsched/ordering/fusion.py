"""Tensor fusion: a chain of transfers cut into groups whose smallest is as large as possible (PACE, Algorithm 1)."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from .jackson import Job, MachineSchedule, preemptive_schedule

# Up to here every number of groups is tried, as in Algorithm 1; beyond, a coarse pass and a fine one around its best.
ALL_COUNTS_UP_TO = 256


def max_min_partition(sizes: Sequence[int], groups: int) -> list[int]:
    """Return the ends (exclusive) of `groups` adjacent groups of the chain, with the largest possible smallest sum.

    PACE (Bao et al., INFOCOM'20), section V, MaxMinSize(N, R). The paper's recursion takes O(N^2 R); here the answer is
    searched among whole numbers: a threshold is reachable iff taking each group as short as it allows gives `groups` or
    more, O(R log N log sum). Needs 1 <= groups <= len(sizes) and whole sizes of zero or more.
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
    preemptive schedule of its jobs together with `others`, which are never fused; ties go to the larger R. Without
    start-up no fusion can help, as the jobs of any group can be sent in its place, so only R = N is looked at. `counts`
    replaces 1..N.
    """
    chain = sorted(range(len(tensors)), key=lambda i: (tensors[i].release, -tensors[i].tail, i))
    sizes = [tensors[i].size_bytes for i in chain]

    def score(count: int) -> Fusion:
        ends = max_min_partition(sizes, count)
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
    return _best(map(score, counts if counts is not None else range(number, 0, -1)))


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
    coarse = sorted({1 + round((number - 1) * (k / (points - 1)) ** 2) for k in range(points)}, reverse=True)
    best = _best(map(score, coarse))
    place = coarse.index(len(best.groups))
    low = coarse[min(place + 1, len(coarse) - 1)]
    high = coarse[max(place - 1, 0)]
    step = max(1, (high - low) // points)
    return _best(itertools.chain([best], map(score, range(high, low - 1, -step))))
