"""MG-WFBP: gradients merged where waiting for the next one costs less than a start-up (Shi et al., INFOCOM'19)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import _paths
from ._messages import costs
from .dag import Dag
from .decision import Decision
from .oracle import times_ns
from .registry import register


def merge(releases: Sequence[int], startups: Sequence[int], wires: Sequence[int]) -> list[tuple[int, int]]:
    """Return the merged gradients as (first, end) of positions; `releases` ascend.

    MG-WFBP, Algorithm 1: in order of generation, a gradient whose sending would start at t is merged into the next one if
    that is generated before t + a, with the start-up a; what follows then counts from the merged gradient. Sending starts
    when the gradient is there and the one before is through (wait-free back-propagation, first in first out). Without
    start-up nothing is merged. The rule is greedy: it never ends later than without merging, and not always as early as the
    best merging would.
    """
    groups: list[tuple[int, int]] = []
    free = 0
    first = 0
    while first < len(releases):
        end = first + 1
        start = max(free, releases[first])
        startup, wire = startups[first], wires[first]
        while end < len(releases) and max(startup, startups[end]) and releases[end] < start + max(startup, startups[end]):
            start = max(start, releases[end])
            startup, wire = max(startup, startups[end]), wire + wires[end]
            end += 1
        groups.append((first, end))
        free = start + startup + wire
        first = end
    return groups


@register("mg-wfbp")
def mg_wfbp(dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0) -> Decision:
    """Return first in, first out with the gradients merged that MG-WFBP merges; each link by itself.

    The cost of a message is its link's start-up plus size / bandwidth, the model which the paper fits. It wants all-reduce
    to end early and does not look at the next forward pass: transfers that are all ready at the start, as
    a step's pulls, become one. Only recvs that wait for no other recv are merged. Priorities are the order of generation.
    Raises DagError for a bad time. `seed` is not used.
    """
    duration = times_ns(dag, times_us)
    release = _paths.heads(dag, duration)
    after_recv = _paths.has_recv_before(dag)
    cost = costs(dag, times_us)
    groups: list[tuple[str, ...]] = []
    for link in dict.fromkeys(op.resource for op in dag.recvs):
        own = [i for i in dag.recv_indices if dag.ops[i].resource == link and not after_recv[i]]
        own.sort(key=release.__getitem__)
        startups = [round(cost[i].startup_us * 1000.0) for i in own]
        wires = [max(0, duration[i] - startup) for i, startup in zip(own, startups, strict=True)]
        for first, end in merge([release[i] for i in own], startups, wires):
            if end - first > 1:
                groups.append(tuple(dag.ops[i].name for i in own[first:end]))
    rank = _paths.ranks([release[i] for i in dag.recv_indices])
    priorities = {op.name: priority for op, priority in zip(dag.recvs, rank, strict=True)}
    return Decision(priorities, groups=groups, policy="bytescheduler")
