"""The list schedule of makespan.py in whole nanoseconds, for searches that run it thousands of times."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from . import _paths
from .dag import Dag
from .jackson import Job, preemptive_schedule
from .oracle import times_ns


class FastSchedule:
    """A DAG prepared for `run`.

    Attributes:
      duration: per op its time in ns.
      recvs: positions of the recv ops.
      compute_rank: per op its topological position, by which compute ops are served.
    """

    def __init__(self, dag: Dag, times_us: Mapping[str, float] | None = None) -> None:
        self.dag = dag
        self.size = len(dag.ops)
        self.duration = times_ns(dag, times_us)
        self.recvs = list(dag.recv_indices)
        self.inputs, self.consumers = dag.input_indices, dag.consumers
        number: dict[str, int] = {}
        self.resource = [number.setdefault(op.resource, len(number)) for op in dag.ops]
        self.resources = len(number)
        self.compute_rank = [0] * self.size
        for rank, i in enumerate(dag.topological_order):
            self.compute_rank[i] = rank

    def order_of(self, priorities: Mapping[str, float]) -> list[int]:
        """Return the recvs as `list_schedule` prefers them: by (priority, position in the file)."""
        return sorted(self.recvs, key=lambda i: (priorities[self.dag.ops[i].name], i))

    def forward(self, order: Sequence[int]) -> tuple[int, list[int]]:
        """Return the makespan and the start of each op, where `order` lists the recvs from the most to the least urgent."""
        rank = self.compute_rank.copy()
        for k, i in enumerate(order):
            rank[i] = k
        return self._run(rank, self.inputs, self.consumers)

    def backward(self, ends: Sequence[int]) -> list[int]:
        """Return, per op, its start if everything is moved as late as possible, later ends first; only the order matters.

        This is the list schedule of the reversed DAG, the half of a forward-backward pass (justification) of project
        scheduling: what is not urgent moves behind what is.
        """
        latest = sorted(range(self.size), key=lambda i: (-ends[i], -self.compute_rank[i]))
        rank = [0] * self.size
        for k, i in enumerate(latest):
            rank[i] = k
        _, starts = self._run(rank, self.consumers, self.inputs)
        return [-(start + time) for start, time in zip(starts, self.duration, strict=True)]

    def _run(
        self, rank: Sequence[int], inputs: Sequence[Sequence[int]], consumers: Sequence[Sequence[int]]
    ) -> tuple[int, list[int]]:
        # Heap entries are whole numbers, key * size + op: half the time of tuples.
        size, duration, resource = self.size, self.duration, self.resource
        push, pop = heapq.heappush, heapq.heappop
        waiting = list(map(len, inputs))
        ready: list[list[int]] = [[] for _ in range(self.resources)]
        for i, count in enumerate(waiting):
            if count == 0:
                ready[resource[i]].append(rank[i] * size + i)
        for queue in ready:
            heapq.heapify(queue)
        idle = [True] * self.resources
        start = [0] * size
        running: list[int] = []
        changed = set(range(self.resources))
        now = 0
        while True:
            for r in changed:
                if idle[r] and ready[r]:
                    i = pop(ready[r]) % size
                    idle[r] = False
                    start[i] = now
                    push(running, (now + duration[i]) * size + i)
            changed.clear()
            if not running:
                return now, start
            now = running[0] // size
            limit = (now + 1) * size
            while running and running[0] < limit:
                i = pop(running) % size
                idle[resource[i]] = True
                changed.add(resource[i])
                for j in consumers[i]:
                    waiting[j] -= 1
                    if waiting[j] == 0:
                        push(ready[resource[j]], rank[j] * size + j)
                        changed.add(resource[j])

    def critical_path(self, start: Sequence[int]) -> list[int]:
        """Return ops from first to last, each of which starts when the one before it ends, the last ending the schedule.

        The one before is an input of the op, or what its resource did before; an input where both fit.
        """
        duration, resource = self.duration, self.resource
        ending: dict[tuple[int, int], int] = {}
        for i in self.dag.topological_order:
            if duration[i]:
                ending[resource[i], start[i] + duration[i]] = i
        last = max(range(self.size), key=lambda i: start[i] + duration[i])
        path = [last]
        while start[path[-1]] > 0:
            i = path[-1]
            before = next((j for j in self.inputs[i] if start[j] + duration[j] == start[i]), None)
            if before is None:
                before = ending.get((resource[i], start[i]))
            if before is None:  # an op of no time between two of its resource
                break
            path.append(before)
        return path[::-1]

    def lower_bound(self) -> int:
        """Return a makespan that no schedule is shorter than: each resource alone, between the longest paths."""
        head, tail = _paths.heads(self.dag, self.duration), _paths.tails(self.dag, self.duration)
        jobs: list[list[Job]] = [[] for _ in range(self.resources)]
        bound = 0
        for i, time in enumerate(self.duration):
            bound = max(bound, head[i] + time + tail[i])
            jobs[self.resource[i]].append(Job(head[i], time, tail[i]))
        return max([bound, *(preemptive_schedule(own).makespan for own in jobs)])
