"""Steps with parameter servers as a DAG, each transfer pushed over one link and pulled over another, and their plan."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from . import _paths
from ._explicit import decision_of, messages_of, opposed, suffix_least
from ._messages import costs
from .chain import Gradient, Slot
from .dag import Dag, Op, Resource
from .decision import Decision
from .flow import best_flow, check, lower_bound
from .oracle import times_ns

# Orderings that plan pushes and pulls as a flow, where pieces go through servers one by one.
FLOWS = ("optimal",)
# A plan counts as proven this near to the bound.
_TOLERANCE = 1e-5


def pushed_first(dag: Dag) -> Dag:
    """Return the dag with each transfer x as two: x/push over another link like its own, and then x.

    A piece of x may be pulled when it is pushed: that is what `optimal` plans for. `evaluate` and every other planner see
    two transfers, of which the second waits for all of the first.
    """
    links = {op.resource: _unlike(f"{op.resource}/up", dag.resources) for op in dag.recvs}
    resources: list[Resource] = list(dag.resources.values())
    resources += [dag.resources[link]._replace(name=name) for link, name in links.items()]
    ops: list[Op] = []
    for op in dag.ops:
        if op.resource in links:
            push = _unlike(f"{op.name}/push", dag.index)
            ops.append(op._replace(name=push, resource=links[op.resource]))
            ops.append(op._replace(inputs=(push,)))
        else:
            ops.append(op)
    return Dag(resources, ops)


def both_ways(dag: Dag, times_us: Mapping[str, float] | None) -> dict[str, float]:
    """Return `times_us` of `dag` for `pushed_first(dag)`: a push takes as long as its pull."""
    given = dict(times_us or {})
    for before, op in itertools.pairwise(pushed_first(dag).ops):
        if op.name in given and before.name not in dag.index:
            given[before.name] = given[op.name]
    return given


def of_pulls(decision: Decision, dag: Dag) -> Decision:
    """Return what a decision for `pushed_first(dag)` says of the transfers of `dag`: of their pulls, and so of both ways."""
    parts = [tuple(part for part in message.parts if part.recv in dag.index) for message in decision.messages]
    return Decision(
        {name: value for name, value in decision.items() if name in dag.index},
        partition_bytes=decision.partition_bytes,
        credit_bytes=decision.credit_bytes,
        groups=[[name for name in group if name in dag.index] for group in decision.groups] if decision.merges else None,
        preemptive=decision.preemptive,
        policy=decision.policy,
        messages=[message._replace(parts=mine) for message, mine in zip(decision.messages, parts, strict=True) if mine],
        notes=decision.notes,
    )


def _unlike(name: str, known: Mapping[str, object]) -> str:
    while name in known:
        name += "'"
    return name


def through_servers(dag: Dag, times_us: Mapping[str, float] | None, at_least: int) -> Decision | None:
    """Return the plan of a dag like those of `pushed_first` with one link each way, or None if it is not like them.

    `at_least`: a makespan in ns that computing alone takes. Raises DagError for a bad time.
    """
    duration = times_ns(dag, times_us)
    pairs = _pairs(dag, duration)
    if not pairs:
        return None
    release, tail = _paths.heads(dag, duration), _paths.tails(dag, duration)
    cost = costs(dag, times_us)
    pairs.sort(key=lambda pair: (release[pair[0]], tail[pair[1]], pair[0]))
    startups = [round(cost[i].startup_us * 1000.0) for _, i in pairs]
    startup = max(startups)
    # A transfer without bytes still needs a message that comes in time.
    made = [Gradient(release[i], max(1, duration[j] - s), tail[j]) for (i, j), s in zip(pairs, startups, strict=True)]
    tails = [gradient.tail for gradient in made]
    lowered = [gradient._replace(tail=q) for gradient, q in zip(made, suffix_least(tails), strict=True)]
    harder = opposed(made)
    pulls, made = [pairs[i][1] for i, _ in harder], [made[i] for i, _ in harder]
    sublots = best_flow([gradient for _, gradient in harder], startup).sublots
    bound = max(at_least, lower_bound(lowered, min(startups)))
    makespan = max(at_least, check(made, startup, sublots))
    # In the order of pulls: both ends prefer what is first, and pushes are held back until their time.
    order = sorted(sublots, key=lambda sublot: (-max(i for i, _ in sublot.parts), sublot.push))
    slots = [Slot(one.push, one.push + startup + sum(t for _, t in one.parts), one.parts) for one in sublots]
    messages = dict(messages_of(dag, pulls, cost, made, slots))
    plan = decision_of(dag, times_us, [(one.push, messages[one.push]) for one in order if one.push in messages])
    for push, pull in pairs:
        plan[dag.ops[push].name] = plan[dag.ops[pull].name]
    plan.notes.update(
        chosen="flow",
        makespan_us=makespan / 1000.0,
        bound_us=bound / 1000.0,
        gap=makespan / bound - 1.0 if bound else 0.0,
        proven=makespan <= bound * (1 + _TOLERANCE),
    )
    return plan


def _pairs(dag: Dag, duration: Sequence[int]) -> list[tuple[int, int]]:
    """(push, pull) of all transfers; none if the dag has others, more links, or two ways that differ in their times."""
    after_recv = _paths.has_recv_before(dag)
    pairs: list[tuple[int, int]] = []
    for pull in dag.recv_indices:
        if not after_recv[pull]:
            continue
        push, op = dag.input_indices[pull][0], dag.ops[pull]
        alike = dag.ops[push].name.startswith(f"{op.name}/push") and dag.ops[push].resource.startswith(f"{op.resource}/up")
        if not alike or len(dag.input_indices[pull]) != 1 or after_recv[push] or dag.consumers[push] != (pull,):
            return []
        if duration[push] != duration[pull] or dag.ops[push].size_bytes != op.size_bytes:
            return []
        pairs.append((push, pull))
    if len({dag.ops[pull].resource for _, pull in pairs}) != 1 or 2 * len(pairs) != len(dag.recv_indices):
        return []
    return pairs
