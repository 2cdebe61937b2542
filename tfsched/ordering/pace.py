"""PACE: the optimal preemptive schedule of all transfers of a link, and which to send as one (Bao et al., INFOCOM'20)."""

from __future__ import annotations

from collections.abc import Mapping

from . import _paths
from ._messages import costs
from .dag import Dag
from .decision import Decision
from .fusion import Tensor, fuse
from .jackson import Job
from .oracle import times_ns
from .partition_choice import choose_partition
from .registry import register


@register("pace")
def pace(dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0) -> Decision:
    """Return priorities by the longest path that follows a recv, preemptive, and the recvs to fuse.

    PACE, section IV: with as many compute devices as needed, a recv i is released by the longest path before it (r_i), takes
    g_i on its link and is followed by the longest path after it (q_i); the step takes max(C_i + q_i). The paper solves the
    integer program (14) by an LP over time slots; this is one machine with preemption, for which sending the largest q_i
    first is optimal (jackson.preemptive_schedule) in O(N log N) without slots. Several links: each by itself.

    Section V, Algorithm 1: `groups` are the max-min groups of the recvs in order of release, for the number of groups
    whose optimal schedule is shortest with one start-up per message. Only recvs that wait for no other recv are fused, as
    the paper assumes of all (section IV-A). `partition_bytes` is for wires that cannot preempt: see partition_choice.

    Raises DagError for a bad time. `seed` is not used.
    """
    duration = times_ns(dag, times_us)
    release, tail = _paths.heads(dag, duration), _paths.tails(dag, duration)
    after_recv = _paths.has_recv_before(dag)
    groups: list[tuple[str, ...]] = []
    tail_of = {i: tail[i] for i in dag.recv_indices}
    cost = costs(dag, times_us)
    for link in dict.fromkeys(op.resource for op in dag.recvs):
        own = [i for i in dag.recv_indices if dag.ops[i].resource == link]
        free = [i for i in own if not after_recv[i]]
        others = [Job(release[i], duration[i], tail[i]) for i in own if after_recv[i]]
        tensors = []
        for i in free:
            startup = round(cost[i].startup_us * 1000.0)
            # Where no sizes are known, the time of the bytes stands for them.
            size = cost[i].size_bytes or max(0, duration[i] - startup)
            tensors.append(Tensor(release[i], startup, max(0, duration[i] - startup), tail[i], size))
        fusion = fuse(tensors, others)
        for members, job in zip(fusion.groups, fusion.jobs, strict=True):
            for k in members:
                tail_of[free[k]] = job.tail
            if len(members) > 1:
                groups.append(tuple(dag.ops[free[k]].name for k in members))
    rank = _paths.ranks([tail_of[i] for i in dag.recv_indices], best_first=False)
    priorities = {op.name: priority for op, priority in zip(dag.recvs, rank, strict=True)}
    bytes_of = {dag.ops[i].name: one.size_bytes for i, one in cost.items()}
    messages = [sum(bytes_of[name] for name in group) for group in groups]
    # Where whole is best that is said as a size that cuts nothing: 0 would leave it to whoever cannot preempt.
    largest = max([*messages, *bytes_of.values()], default=0)
    return Decision(
        priorities,
        groups=groups,
        preemptive=True,
        partition_bytes=choose_partition(dag, Decision(priorities, groups=groups), times_us) or largest,
        policy="bytescheduler",
    )
