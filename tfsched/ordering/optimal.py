"""Optimal, tfsched's own planner: the shortest step of a chain whose messages each cost a start-up, proven where it can
be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfsched._rules import LARGEST_MESSAGE_BYTES

from . import _paths
from ._explicit import decision_of, messages_of, opposed, suffix_least
from ._fast_schedule import FastSchedule
from ._messages import costs
from .chain import Gradient, best_cuts, fill
from .dag import Dag
from .decision import Decision, Message
from .evaluate import evaluate
from .jackson import Job, preemptive_schedule
from .oracle import times_ns
from .registry import get, register
from .servers import through_servers

# Planners whose decisions are tried where the bound is not reached; those of a wire that preempts are not: no real one does.
RIVALS = (
    "buckets", "us-byte", "dynacomm", "mg-wfbp", "prophet", "bytescheduler", "p3", "lookahead", "tao", "tio", "layer",
    "fifo",
)  # fmt: skip
# A plan counts as proven this near to the bound: bytes are whole, and a message may be a byte longer than its share.
TOLERANCE = 1e-5


@register("optimal")
def optimal(dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0) -> Decision:
    """Return explicit messages with the shortest step that any cutting, merging and order can give, where that is proven.

    The optimum of a chain (docs/optimal.md): releases are the longest paths before the transfers, tails those after them.
    Where the transfers that are ready later are needed sooner, `chain.best_cuts` is the optimum of one link over all plans
    with a start-up per message, and no DAG with these paths can be done sooner. If `evaluate` of its messages comes to this
    bound, the plan is optimal, and `notes["proven"]` says so. Training steps of chains, those of layer tables, are such.

    Elsewhere (other orders of release and need, recvs that wait for recvs, several links or devices that wait for each
    other) the same cuts are made for recvs that are harder to serve (`_explicit.opposed`), every planner that a wire without
    preemption carries is tried, and the shortest plan under `evaluate` is taken: it is never worse than any of them. The
    bound then uses tails lowered until they ascend.

    A dag in which each transfer is pushed over one link and pulled over another (`servers.pushed_first`) is planned as a
    flow: docs/optimal.md, "Servers". The messages name the pulls, and stand for pushes of the same bytes.

    `notes`: chosen, makespan_us, bound_us, gap (0.01 is 1 %) and proven. Messages are held back until their planned time, so
    that a plan is as good as its times; `buckets` needs less of them. Raises DagError for a bad time. `seed` is that of the
    others.
    """
    flow = through_servers(dag, times_us, _compute_bound(dag, times_ns(dag, times_us)))
    if flow is not None:
        return flow
    bound_us, messages = _of_links(dag, times_us)
    chosen = "cuts"
    plan = decision_of(dag, times_us, messages)
    plan.divided_bytes = LARGEST_MESSAGE_BYTES  # they may be as large as a model, and only what is there whole is summed
    span_us = evaluate(dag, plan, times_us).makespan_us
    if span_us > bound_us * (1 + TOLERANCE):
        for name in RIVALS:
            rival = Decision.of(get(name)(dag, times_us, seed=seed))
            rival_us = evaluate(dag, rival, times_us).makespan_us
            if rival_us < span_us:
                chosen, plan, span_us = name, rival, rival_us
    plan.notes.update(
        chosen=chosen,
        makespan_us=span_us,
        bound_us=bound_us,
        gap=span_us / bound_us - 1.0 if bound_us else 0.0,
        proven=span_us <= bound_us * (1 + TOLERANCE),
    )
    return plan


def lower_bound_us(dag: Dag, times_us: Mapping[str, float] | None = None) -> float:
    """Return a makespan in µs that no plan for a wire is below, whatever it cuts, merges and cuts short. Raises DagError."""
    return _of_links(dag, times_us)[0]


def _of_links(dag: Dag, times_us: Mapping[str, float] | None) -> tuple[float, list[tuple[int, Message]]]:
    """The bound in µs, and the messages of all links with their planned starts in ns."""
    duration = times_ns(dag, times_us)
    cost = costs(dag, times_us)
    release, tail = _paths.heads(dag, duration), _paths.tails(dag, duration)
    after_recv = _paths.has_recv_before(dag)
    bound = _compute_bound(dag, duration)
    links: list[tuple[list[int], list[Gradient], int]] = []
    for link in dict.fromkeys(op.resource for op in dag.recvs):
        own = sorted((i for i in dag.recv_indices if dag.ops[i].resource == link), key=lambda i: (release[i], tail[i], i))
        startups = [round(cost[i].startup_us * 1000.0) for i in own]
        wires = [max(0, duration[i] - s) for i, s in zip(own, startups, strict=True)]
        least = min(startups)  # recvs of a shorter time than the link's start-up cost less
        tails = [tail[i] for i in own]
        lowered = [Gradient(release[i], w, q) for i, w, q in zip(own, wires, suffix_least(tails), strict=True)]
        bound = max(bound, best_cuts(lowered, least).makespan)
        jobs = [Job(release[i], w, q) for i, w, q in zip(own, wires, tails, strict=True)]
        bound = max(bound, preemptive_schedule(jobs).makespan + least)
        # A recv that waits for others must not wait in a message for one of these: it goes alone, behind the messages.
        free = [k for k, i in enumerate(own) if not after_recv[i]]
        harder = opposed([Gradient(release[own[k]], wires[k], tails[k]) for k in free])
        links.append(([own[free[i]] for i, _ in harder], [gradient for _, gradient in harder], max(startups)))
    messages: list[tuple[int, Message]] = []
    for own, gradients, startup in links:
        if not own:
            continue
        slots = fill(gradients, startup, best_cuts(gradients, startup, bound))
        messages += messages_of(dag, own, cost, gradients, slots)
    messages.sort(key=lambda item: item[0])
    return bound / 1000.0, messages


def _compute_bound(dag: Dag, duration: Sequence[int]) -> int:
    """Longest path and busiest device, transfers counted as nothing: what no plan for transfers changes."""
    links = {op.resource for op in dag.recvs}
    times = {op.name: 0.0 if op.resource in links else t / 1000.0 for op, t in zip(dag.ops, duration, strict=True)}
    return FastSchedule(dag, times).lower_bound()
