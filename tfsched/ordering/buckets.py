"""Buckets, tfsched's own planner: messages of about one size, small transfers merged and large ones cut."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from tfsched._rules import chunks_of

from . import _paths
from ._messages import costs
from .dag import Dag
from .decision import Decision
from .evaluate import evaluate
from .lookahead import lookahead
from .mg_wfbp import mg_wfbp
from .oracle import times_ns
from .pace import pace
from .registry import register

# What the trials of T may cost together, in ops and messages: some 2 s. With many ops, fewer T are tried.
MOST_RUN = 200_000


@register("buckets")
def buckets(dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0) -> Decision:
    """Return priorities, groups and a partition size for a link with a start-up cost per message and no preemption.

    PACE merges but needs a wire that it may cut anywhere; ByteScheduler cuts but pays a start-up for each small tensor;
    MG-WFBP merges and forgets the next forward pass. Here one number T decides both: transfers are taken in order of
    release (ties: the longer path behind them first) and merged until a message has T bytes, larger ones leave in pieces
    of T, and the most urgent message, that with the longest path behind it, goes first, with a credit of T. T is the best
    of powers of the root of two in `evaluate`; of equal plans that with the fewest messages is taken. The plans of
    lookahead, MG-WFBP and PACE's groups without preemption are tried as well, so under this model it is never worse than
    any of them, TIO and TAO included.

    Without start-up it comes to small pieces by urgency. It does not help where a message costs nothing and nothing is
    overtaken, as in pulls alone, and it is as good as the start-up that the dag names. `seed` is lookahead's.
    `notes` names the plan that was chosen. Raises DagError for a bad time.
    """
    left = MOST_RUN
    best: Decision | None = None
    best_key = (math.inf, 0)
    for name, plan in itertools.chain(_known(dag, times_us, seed), _by_size(dag, times_us)):
        messages = _messages(dag, plan)
        if name.startswith("messages"):
            left -= messages
            if left < 0:  # T only gets smaller
                break
        makespan_us = evaluate(dag, plan, times_us).makespan_us
        if (makespan_us, messages) < best_key:
            best, best_key = plan, (makespan_us, messages)
            best.notes.update({"chosen": name, "makespan_us": makespan_us, "messages": messages})
    assert best is not None
    return best


def _known(dag: Dag, times_us: Mapping[str, float] | None, seed: int) -> Iterator[tuple[str, Decision]]:
    # A credit of one byte: one message at a time, as what is handed over cannot be overtaken.
    yield "lookahead", Decision(lookahead(dag, times_us, seed=seed), credit_bytes=1, policy="bytescheduler")
    yield "mg-wfbp", mg_wfbp(dag, times_us)
    plan = pace(dag, times_us)
    unit = plan.partition_bytes
    yield "pace", Decision(plan, groups=plan.groups, partition_bytes=unit, credit_bytes=1, policy="bytescheduler")


def _by_size(dag: Dag, times_us: Mapping[str, float] | None) -> Iterator[tuple[str, Decision]]:
    """Plans for T from the largest to 16 KiB."""
    facts = _Facts(dag, times_us)
    total = sum(cost.size_bytes for cost in facts.cost.values())
    sizes = [round(2 ** (k / 2)) for k in range(28, 128)]
    sizes = [size for size in reversed(sizes) if size < total]
    trials = max(4, MOST_RUN // len(dag.ops))
    for size in sizes[:: max(1, -(-len(sizes) // trials))]:
        yield f"messages of {size} bytes", facts.plan(size)


class _Facts:
    """What is the same for every T."""

    def __init__(self, dag: Dag, times_us: Mapping[str, float] | None) -> None:
        self.dag = dag
        self.cost = costs(dag, times_us)
        duration = times_ns(dag, times_us)
        self.tail = tail = _paths.tails(dag, duration)
        release = _paths.heads(dag, duration)
        # A recv that waits for others must not wait in a message for one of these.
        after_recv = _paths.has_recv_before(dag)
        free = [i for i in dag.recv_indices if not after_recv[i]]
        free.sort(key=lambda i: (dag.ops[i].resource, release[i], -tail[i], i))
        self.chains = [list(own) for _, own in itertools.groupby(free, key=lambda i: dag.ops[i].resource)]

    def plan(self, size: int) -> Decision:
        """The messages of about `size` bytes."""
        urgency = {i: self.tail[i] for i in self.dag.recv_indices}
        groups: list[tuple[str, ...]] = []
        for members in self._merged(size):
            groups.append(tuple(self.dag.ops[i].name for i in members))
            most = max(self.tail[i] for i in members)
            urgency.update(dict.fromkeys(members, most))
        rank = _paths.ranks([urgency[i] for i in self.dag.recv_indices], best_first=False)
        priorities = {op.name: r for op, r in zip(self.dag.recvs, rank, strict=True)}
        return Decision(priorities, groups=groups, partition_bytes=size, credit_bytes=size, policy="bytescheduler")

    def _merged(self, size: int) -> Iterator[list[int]]:
        for chain in self.chains:
            members: list[int] = []
            held = 0
            for i in chain:
                own = self.cost[i].size_bytes
                if own >= size:
                    continue
                if held + own > size:
                    if len(members) > 1:
                        yield members
                    members, held = [], 0
                members.append(i)
                held += own
            if len(members) > 1:
                yield members


def _messages(dag: Dag, plan: Decision) -> int:
    """How many messages a plan sends, recvs of unknown size as one."""
    alone = {op.name: op.size_bytes or 0 for op in dag.recvs}
    loads = [sum(alone.pop(name) for name in group) for group in plan.groups] + list(alone.values())
    return sum(chunks_of(load, plan.partition_bytes) for load in loads)
