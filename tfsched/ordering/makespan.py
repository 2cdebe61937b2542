"""The makespan of a priority assignment: a deterministic list schedule of the DAG."""

from __future__ import annotations

import heapq
import math
import numbers
from collections.abc import Mapping
from typing import NamedTuple

from ._checks import show
from .dag import Dag, DagError


class Schedule(NamedTuple):
    """When each op runs: op name -> start and end in µs from the start of the step."""

    makespan_us: float
    start_us: dict[str, float]
    end_us: dict[str, float]


def list_schedule(
    dag: Dag,
    priorities: Mapping[str, float] | None = None,
    times_us: Mapping[str, float] | None = None,
) -> Schedule:
    """Run `dag` with every resource executing one op at a time, and return the schedule.

    A free resource takes, among its ready ops, the recv with the lowest (priority, position in the
    file), or the compute op with the lowest topological position; it never waits for a better one
    (the execution model of TicTac, section 3, with its random choice made deterministic). A recv
    without a priority comes after those that have one; names that are no recv are ignored.

    O((V + E) log V). Raises DagError for a bad time or a priority that is not a number.
    """
    duration_us = dag.times_us(times_us)
    keys = _sort_keys(dag, priorities or {})
    waiting = [len(inputs) for inputs in dag.input_indices]
    ready: dict[str, list[tuple[float, int, int]]] = {name: [] for name in dag.resources}
    idle = set(dag.resources)
    start_us = [0.0] * len(dag.ops)
    end_us = [0.0] * len(dag.ops)
    running: list[tuple[float, int]] = []
    changed: dict[str, None] = {}  # resources to look at, in a fixed order

    def make_ready(i: int) -> None:
        resource = dag.ops[i].resource
        heapq.heappush(ready[resource], (*keys[i], i))
        changed[resource] = None

    now_us = 0.0
    for i, count in enumerate(waiting):
        if count == 0:
            make_ready(i)
    while changed or running:
        for resource in changed:
            if resource in idle and ready[resource]:
                i = heapq.heappop(ready[resource])[2]
                idle.remove(resource)
                start_us[i] = now_us
                end_us[i] = now_us + duration_us[i]
                heapq.heappush(running, (end_us[i], i))
        changed.clear()
        if not running:
            break
        now_us = running[0][0]
        # All ops that end now end before any resource chooses again.
        while running and running[0][0] == now_us:
            i = heapq.heappop(running)[1]
            idle.add(dag.ops[i].resource)
            changed[dag.ops[i].resource] = None
            for j in dag.consumers[i]:
                waiting[j] -= 1
                if waiting[j] == 0:
                    make_ready(j)
    names = [op.name for op in dag.ops]
    return Schedule(max(end_us), dict(zip(names, start_us, strict=True)), dict(zip(names, end_us, strict=True)))


def _sort_keys(dag: Dag, priorities: Mapping[str, float]) -> list[tuple[float, int]]:
    keys = [(0.0, 0)] * len(dag.ops)
    for rank, i in enumerate(dag.topological_order):
        keys[i] = (0.0, rank)
    for i in dag.recv_indices:
        name = dag.ops[i].name
        priority = priorities.get(name, math.inf)
        if not isinstance(priority, numbers.Real) or math.isnan(priority):
            raise DagError(f"the priority of recv op {show(name)} is {show(priority)}; give a number")
        keys[i] = (float(priority), i)
    return keys
