"""TicTac's Algorithms 1-3, transcribed line by line: the slow reference for the fast orderings.

Departures from the printed text, each the same as in the fast versions: the comparator's first
comparison follows equation 5 (`as_printed=True` gives the printed one); the minimum is the one of a
scan in file order; an op's M is the largest of its per-channel sums (section 4.1); only
computation counts in P and M+, never a recv that has inputs itself. Times are whole nanoseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tfsched.ordering.dag import Dag


def find_dependencies(dag: Dag) -> dict[str, frozenset[str]]:
    """op.dep: the recvs an op depends on directly or transitively; a recv's includes itself."""
    recvs = {op.name for op in dag.recvs}
    dep: dict[str, frozenset[str]] = {}
    for i in dag.topological_order:
        op = dag.ops[i]
        dep[op.name] = frozenset().union(*(dep[name] for name in op.inputs))
        if op.name in recvs:
            dep[op.name] |= {op.name}
    return dep


class Properties:
    """Algorithm 1: op.M for every op, r.P and r.M+ for every outstanding recv."""

    def __init__(
        self,
        dag: Dag,
        dep: Mapping[str, frozenset[str]],
        time: Mapping[str, int],
        outstanding: frozenset[str],
    ) -> None:
        recvs = {op.name: op.resource for op in dag.recvs}
        channels = set(recvs.values())
        self.m: dict[str, float] = {}
        for op in dag.ops:
            if op.name in recvs:
                self.m[op.name] = time[op.name]
            else:
                waits = dep[op.name] & outstanding
                self.m[op.name] = max((sum(time[r] for r in waits if recvs[r] == c) for c in channels), default=0)
        self.p: dict[str, float] = dict.fromkeys(outstanding, 0)
        self.plus: dict[str, float] = dict.fromkeys(outstanding, math.inf)
        for op in dag.ops:
            if op.name in recvs:
                continue
            waits = dep[op.name] & outstanding
            if len(waits) == 1:
                for r in waits:
                    self.p[r] += time[op.name]
            if len(waits) > 1:
                for r in waits:
                    self.plus[r] = min(self.plus[r], self.m[op.name])

    def precedes(self, a: str, b: str, as_printed: bool) -> bool:
        """Algorithm 2, Comparator: whether recv a comes before recv b."""
        first = min(self.p[a], self.m[b])
        second = min(self.p[b], self.m[a])
        if first != second:
            return first < second if as_printed else second < first
        return self.plus[a] < self.plus[b]


def tao(
    dag: Dag,
    times_us: Mapping[str, float] | None = None,
    *,
    seed: int = 0,
    as_printed: bool = False,
) -> dict[str, float]:
    """Algorithm 2."""
    time = {op.name: round(t * 1000) for op, t in zip(dag.ops, dag.times_us(times_us), strict=True)}
    dep = find_dependencies(dag)
    outstanding = [op.name for op in dag.recvs]
    priorities: dict[str, float] = {}
    count = 0
    while outstanding:
        properties = Properties(dag, dep, time, frozenset(outstanding))
        best = outstanding[0]
        for recv in outstanding[1:]:
            if properties.precedes(recv, best, as_printed):
                best = recv
        outstanding.remove(best)
        priorities[best] = float(count)
        count += 1
    return {op.name: priorities[op.name] for op in dag.recvs}


def tio(dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0) -> dict[str, float]:
    """Algorithm 3 with the general time oracle (equation 6); infinity becomes largest + 1."""
    recvs = [op.name for op in dag.recvs]
    time = {op.name: int(op.name in set(recvs)) for op in dag.ops}
    plus = Properties(dag, find_dependencies(dag), time, frozenset(recvs)).plus
    last = max((value for value in plus.values() if value != math.inf), default=0) + 1
    return {name: float(min(plus[name], last)) for name in recvs}
