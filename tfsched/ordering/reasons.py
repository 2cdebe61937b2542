"""Why an order is what it is: the numbers that TAO compares, along any order, and the critical path of a schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .dag import Dag
from .evaluate import Sent
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


def critical_path(dag: Dag, schedule: Schedule, stretches: Iterable[Sent] = ()) -> list[Step]:
    """Return the chain of ops that made the schedule as long as it is, first op first.

    From what ends last, backwards: each op started when its last input ended or, if that was later, when its resource
    became free; that op is the one before it on the path. Where transfers are cut, merged or overtaken, `stretches` (see
    `tfsched.ordering.evaluate.sent`) are what each link did: each counts by itself, for a transfer that is overtaken holds
    its link at its beginning and at its end only.
    """
    acts = _activities(dag, schedule, stretches)
    # Ops without duration share their time with others: those that come first in the dag are taken to have run first.
    place = {i: rank for rank, i in enumerate(dag.topological_order)}
    ranks = [place.get(i, len(place)) for i in range(len(acts))]
    holder: dict[int, int] = {}  # per activity the one before it on its resource
    latest: dict[str, int] = {}
    for i in sorted(range(len(acts)), key=lambda i: (acts[i].start_us, acts[i].end_us, ranks[i])):
        if acts[i].resource in latest:
            holder[i] = latest[acts[i].resource]
        latest[acts[i].resource] = i
    path: list[Step] = []
    visited: set[int] = set()
    current: int | None = max(range(len(acts)), key=lambda i: (acts[i].end_us, ranks[i]))
    while current is not None and current not in visited:
        visited.add(current)
        act = acts[current]
        current, why = _before(acts, act, holder.get(current))
        path.append(Step(act.name, act.resource, act.start_us, act.end_us, why))
    return path[::-1]


class _Activity(NamedTuple):
    """An op, or a stretch of a link; `inputs` are the activities that it waited for."""

    name: str
    resource: str
    start_us: float
    end_us: float
    inputs: tuple[int, ...]


def _activities(dag: Dag, schedule: Schedule, stretches: Iterable[Sent]) -> list[_Activity]:
    """The ops in file order, then the stretches; the last stretch of a recv stands for it."""
    number_of = list(range(len(dag.ops)))  # per op the activity that delivers it
    sent = list(stretches)
    for k, stretch in enumerate(sent, len(dag.ops)):
        for name in stretch.recvs:
            i = dag.index[name]
            if number_of[i] < len(dag.ops) or sent[number_of[i] - len(dag.ops)].end_us <= stretch.end_us:
                number_of[i] = k
    acts = []
    for i, op in enumerate(dag.ops):
        inputs = tuple(number_of[j] for j in dag.input_indices[i])
        if number_of[i] == i:
            acts.append(_Activity(op.name, op.resource, schedule.start_us[op.name], schedule.end_us[op.name], inputs))
        else:
            acts.append(_Activity(op.name, "", 0.0, -1.0, ()))  # its stretches stand for it
    for stretch in sent:
        sources = {number_of[j] for name in stretch.recvs for j in dag.input_indices[dag.index[name]]}
        name = stretch.recvs[0] if len(stretch.recvs) == 1 else f"{stretch.recvs[0]} + {len(stretch.recvs) - 1} more"
        acts.append(_Activity(name, stretch.link, stretch.start_us, stretch.end_us, tuple(sorted(sources))))
    return acts


def _before(acts: list[_Activity], act: _Activity, holder: int | None) -> tuple[int | None, str]:
    last = max(act.inputs, key=lambda i: acts[i].end_us, default=None)
    ready_us = acts[last].end_us if last is not None else 0.0
    free_us = acts[holder].end_us if holder is not None else 0.0
    if last is not None and ready_us >= free_us:
        return last, f"waited for its input {acts[last].name}"
    if holder is not None and free_us > 0:
        return holder, f"waited for {act.resource}, busy with {acts[holder].name}"
    return None, "could start at once"
