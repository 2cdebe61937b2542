"""The shortest makespan of a small DAG by branch and bound, for where no constraint solver is installed."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

from .jackson import Job, preemptive_schedule

# States kept to recognise a worse one of the same ops; beyond, none is added.
MOST_STATES = 400_000


class Problem(NamedTuple):
    """Ops 0..n-1 in topological order. An op of duration 0 occupies nothing; `resource` is a number, -1 for such an op."""

    duration: tuple[int, ...]
    inputs: tuple[tuple[int, ...], ...]
    consumers: tuple[tuple[int, ...], ...]
    resource: tuple[int, ...]
    tail: tuple[int, ...]
    resources: int


class Found(NamedTuple):
    """`bound` is what no schedule can be shorter than; it is `makespan` once the search is complete."""

    makespan: int
    start: list[int]
    bound: int


def lower_bound(problem: Problem) -> int:
    """Return the longest path, or the best preemptive schedule of a resource between heads and tails if that is longer."""
    run = _Search(problem, 0, [], math.inf)
    return run.bound_of([0] * len(problem.duration), [0] * problem.resources, 0)


def search(problem: Problem, makespan: int, start: Sequence[int], time_limit_s: float) -> Found:
    """Improve the schedule (makespan, start) until nothing shorter is left or time is up.

    Giffler and Thompson's active schedules, one of which is optimal: of the ops that could start, take the resource on
    which one could end first and branch on which of its ops that could start before that end goes next. A branch is cut
    by `lower_bound` of what is left, and if the same ops have been scheduled before with nothing later (free times, ready
    times).
    """
    run = _Search(problem, makespan, list(start), time.monotonic() + time_limit_s)
    root = lower_bound(problem)
    if root >= makespan:
        return Found(makespan, list(start), makespan)
    size = len(problem.duration)
    left = run.descend([0] * size, [0] * problem.resources, [len(i) for i in problem.inputs], 0, [0] * size)
    return Found(run.best, run.best_start, int(max(root, min(run.best, left))))


class _Search:
    def __init__(self, problem: Problem, best: int, best_start: list[int], deadline_s: float) -> None:
        self.problem = problem
        self.best = best
        self.best_start = best_start
        self.deadline_s = deadline_s
        self.late = False
        self.nodes = 0
        self.seen: dict[int, list[tuple[int, ...]]] = {}
        self.states = 0

    def bound_of(self, ready: list[int], free: list[int], done: int) -> int:
        """The lower bound of all that continues this schedule; `ready` is per op the latest end of its scheduled inputs."""
        duration, _, consumers, resource, tail, resources = self.problem
        head = ready.copy()
        jobs: list[list[Job]] = [[] for _ in range(resources)]
        bound = 0
        for i, time_ in enumerate(duration):
            if done >> i & 1:
                continue
            r = resource[i]
            if r >= 0:
                head[i] = max(head[i], free[r])
                jobs[r].append(Job(head[i], time_, tail[i]))
            end = head[i] + time_
            bound = max(bound, end + tail[i])
            for j in consumers[i]:
                if end > head[j]:
                    head[j] = end
        if bound >= self.best > 0:
            return bound
        for own in jobs:
            if len(own) > 1:
                bound = max(bound, preemptive_schedule(own).makespan)
        return bound

    def place(self, i: int, ready: list[int], free: list[int], missing: list[int], done: int, start: list[int]) -> int:
        """Schedule op i at its earliest, and the ops of no duration that it makes ready; return `done`."""
        duration, _, consumers, resource, _, _ = self.problem
        stack = [i]
        while stack:
            i = stack.pop()
            r = resource[i]
            start[i] = max(ready[i], free[r]) if r >= 0 else ready[i]
            end = start[i] + duration[i]
            if r >= 0:
                free[r] = end
            done |= 1 << i
            for j in consumers[i]:
                ready[j] = max(ready[j], end)
                missing[j] -= 1
                if missing[j] == 0 and resource[j] < 0:
                    stack.append(j)
        return done

    def descend(self, ready: list[int], free: list[int], missing: list[int], done: int, start: list[int]) -> float:
        """Search all schedules that continue this one; return the least bound of those that were left for lack of time."""
        duration, inputs, _, resource, tail, _ = self.problem
        size = len(duration)
        if not done:  # ops without inputs and duration
            for i in range(size):
                if not inputs[i] and resource[i] < 0 and not done >> i & 1:
                    done = self.place(i, ready, free, missing, done, start)
        if done == (1 << size) - 1:
            makespan = max(s + t for s, t in zip(start, duration, strict=True))
            if makespan < self.best:
                self.best, self.best_start = makespan, start.copy()
            return math.inf
        able = [i for i in range(size) if missing[i] == 0 and not done >> i & 1]
        earliest = {i: max(ready[i], free[resource[i]]) for i in able}
        first = min(able, key=lambda i: earliest[i] + duration[i])
        limit, chosen = earliest[first] + duration[first], resource[first]
        children = []
        for i in able:
            if resource[i] != chosen or earliest[i] >= limit:
                continue
            state = (ready.copy(), free.copy(), missing.copy())
            begun = start.copy()
            now = self.place(i, *state, done, begun)
            bound = self.bound_of(state[0], state[1], now)
            if bound < self.best and not self.dominated(now, state[0], state[1]):
                children.append((bound, -tail[i], i, state, now, begun))
        children.sort(key=lambda child: child[:3])
        left = math.inf
        for bound, _, _, state, now, begun in children:
            self.nodes += 1
            if self.nodes % 64 == 1 and time.monotonic() > self.deadline_s:
                self.late = True
            if bound >= self.best:
                continue
            left = min(left, bound) if self.late else min(left, self.descend(*state, now, begun))
        return left

    def dominated(self, done: int, ready: list[int], free: list[int]) -> bool:
        """Whether the same ops were scheduled before with nothing later; if not, remember this."""
        resource = self.problem.resource
        state = tuple(
            max(ready[i], free[resource[i]]) if resource[i] >= 0 else ready[i]
            for i in range(len(ready))
            if not done >> i & 1
        ) + tuple(free)
        known = self.seen.setdefault(done, [])
        if any(all(a <= b for a, b in zip(old, state, strict=True)) for old in known):
            return True
        if self.states < MOST_STATES:
            known.append(state)
            self.states += 1
        return False
