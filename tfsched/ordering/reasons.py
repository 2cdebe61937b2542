"""Why an order is what it is: the numbers that TAO compares, along any order, and the critical path of a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .dag import Dag
from .makespan import Schedule
from .oracle import times_ns
from .tao import _INFINITE, _Properties


class Reason(NamedTuple):
    """One recv at its turn, with the recvs before it taken to have arrived (TicTac, Algorithm 1). Times in µs.

    Attributes:
      name: the recv.
      priority: what the ordering gave it.
      m_us: M, its own transfer time.
      p_us: P, the computation that only it holds up.
      m_plus_us: M+, the least transfer time that starts a computation which waits for it and another; None if there is none.
      why: what puts it before the one that follows, by TAO's rule.
    """

    name: str
    priority: float
    m_us: float
    p_us: float
    m_plus_us: float | None
    why: str


class Step(NamedTuple):
    """A stretch of the critical path: `op` ran from `start_us` to `end_us`, and `why` says what let it start then."""

    op: str
    resource: str
    start_us: float
    end_us: float
    why: str


def reasons(dag: Dag, priorities: Mapping[str, float], times_us: Mapping[str, float] | None = None) -> list[Reason]:
    """Return the recvs in the order of `priorities` (ties in file order), each with the M, P and M+ of its turn.

    For TAO's own order these are the numbers that decided. For another one they show what TAO would have compared: a recv
    that goes early with P = 0 and a large M+ starts nothing.
    Raises DagError for a bad time. O(recvs * (groups + edges)) in numpy, as TAO itself.
    """
    properties = _Properties(dag, times_ns(dag, times_us))
    names = [op.name for op in dag.recvs]
    order = sorted(range(len(names)), key=lambda recv: priorities[names[recv]])
    result: list[Reason] = []
    for turn, recv in enumerate(order):
        following = order[turn + 1] if turn + 1 < len(order) else None
        m, p, plus = _numbers(properties, recv)
        if following is None:
            why = "the last one"
        else:
            why = _compare((m, p, plus), _numbers(properties, following), names[following])
        shown = None if plus == _INFINITE else plus / 1000
        result.append(Reason(names[recv], priorities[names[recv]], m / 1000, p / 1000, shown, why))
        properties.remove(recv)
    return result


def _numbers(properties: _Properties, recv: int) -> tuple[int, int, int]:
    """M, P and M+ of one outstanding recv, in ns."""
    if properties.new_pairs:
        properties.impending_ns()  # takes the new pairs in
    mine = properties.pair_group[properties.pair_recv == recv]
    mine = mine[properties.count[mine] >= 2]
    plus = int(properties.cost_ns[mine].min()) if len(mine) else int(_INFINITE)
    return int(properties.recv_ns[recv]), int(properties.load_ns[recv]), plus


def _compare(one: tuple[int, int, int], other: tuple[int, int, int], name: str) -> str:
    """TAO's comparison of a recv with the one that follows it, in words."""
    m_a, p_a, plus_a = one
    m_b, p_b, plus_b = other
    ours, theirs = min(p_b, m_a), min(p_a, m_b)
    if ours < theirs:
        return f"before {name}: min(P', M) = {_us(ours)} < min(P, M') = {_us(theirs)}"
    if ours > theirs:
        return f"TAO would take {name} first: min(P', M) = {_us(ours)} > min(P, M') = {_us(theirs)}"
    if plus_a < plus_b:
        return f"before {name}: a tie, and M+ = {_us(plus_a)} < {_us(plus_b)}"
    if plus_a > plus_b:
        return f"TAO would take {name} first: a tie, and its M+ = {_us(plus_b)} < {_us(plus_a)}"
    return f"as good as {name}"


def _us(time_ns: int) -> str:
    return "none" if time_ns == _INFINITE else f"{time_ns / 1000:,.1f} us"


def critical_path(dag: Dag, schedule: Schedule) -> list[Step]:
    """Return the chain of ops that made the schedule as long as it is, first op first.

    From the op that ends last, backwards: each op started when its last input ended or, if that was earlier, when its
    resource became free; that op is the one before it on the path.
    """
    start = np.array([schedule.start_us[op.name] for op in dag.ops])
    end = np.array([schedule.end_us[op.name] for op in dag.ops])
    # Per resource, its ops by the time they end, to find the one that held it.
    of_resource: dict[str, np.ndarray] = {}
    for name in dag.resources:
        mine = np.array([i for i, op in enumerate(dag.ops) if op.resource == name], dtype=np.int64)
        of_resource[name] = mine[np.argsort(end[mine], kind="stable")]
    path: list[Step] = []
    visited: set[int] = set()
    i: int | None = int(end.argmax())
    while i is not None and i not in visited:
        visited.add(i)
        before, why = _before(dag, i, start, end, of_resource[dag.ops[i].resource], visited)
        op = dag.ops[i]
        path.append(Step(op.name, op.resource, float(start[i]), float(end[i]), why))
        i = before
    return path[::-1]


def _before(
    dag: Dag, i: int, start: np.ndarray, end: np.ndarray, mine: np.ndarray, visited: set[int]
) -> tuple[int | None, str]:
    inputs = list(dag.input_indices[i])
    last = max(inputs, key=lambda j: float(end[j]), default=None)
    # Ops of the same resource that ended by the time this one started.
    until = int(np.searchsorted(end[mine], start[i] * (1 + 1e-12), side="right"))
    holder = next((int(j) for j in mine[:until][::-1][:8] if j != i and int(j) not in visited), None)
    ready_us = float(end[last]) if last is not None else 0.0
    free_us = float(end[holder]) if holder is not None else 0.0
    if last is not None and ready_us >= free_us:
        return last, f"waited for its input {dag.ops[last].name}"
    if holder is not None and free_us > 0:
        return holder, f"waited for {dag.ops[i].resource}, busy with {dag.ops[holder].name}"
    return None, "could start at once"
