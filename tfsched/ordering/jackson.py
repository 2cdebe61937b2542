"""One machine, release times, tails, preemption: the problem below PACE, solved exactly."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple


class Job(NamedTuple):
    """Released at `release`, needs the machine for `length`, and is followed by `tail` that needs no machine."""

    release: int
    length: int
    tail: int


class Slice(NamedTuple):
    """The machine works on job number `job` from `start` to `end`."""

    job: int
    start: int
    end: int


class MachineSchedule(NamedTuple):
    """`makespan` is the largest end + tail; a job's end is that of its last slice, or its release if its length is 0."""

    makespan: int
    slices: list[Slice]
    ends: list[int]


def preemptive_schedule(jobs: Sequence[Job]) -> MachineSchedule:
    """Return a schedule with the least max(end + tail), in whole units of time, in O(N log N).

    Jackson's preemptive rule: at every release and completion, work on the released job with the largest tail (ties: the
    first in `jobs`). Optimal for 1 | r_i, pmtn | max(C_i + q_i), and so for PACE's integer program (Bao et al., INFOCOM'20,
    equations 2-9, transformed to equation 10), which is this problem in slots.
    """
    order = sorted(range(len(jobs)), key=lambda i: jobs[i].release)
    left = [job.length for job in jobs]
    ends = [job.release for job in jobs]
    slices: list[Slice] = []
    ready: list[tuple[int, int]] = []
    now = 0
    position = 0
    while ready or position < len(order):
        if not ready:
            now = max(now, jobs[order[position]].release)
        while position < len(order) and jobs[order[position]].release <= now:
            heapq.heappush(ready, (-jobs[order[position]].tail, order[position]))
            position += 1
        i = ready[0][1]
        until = now + left[i]
        if position < len(order):
            until = min(until, jobs[order[position]].release)
        if until > now:
            if slices and slices[-1].job == i and slices[-1].end == now:
                slices[-1] = slices[-1]._replace(end=until)
            else:
                slices.append(Slice(i, now, until))
        left[i] -= until - now
        now = until
        if left[i] == 0:
            heapq.heappop(ready)
            if jobs[i].length:
                ends[i] = now
    makespan = max((end + job.tail for end, job in zip(ends, jobs, strict=True)), default=0)
    return MachineSchedule(makespan, slices, ends)
