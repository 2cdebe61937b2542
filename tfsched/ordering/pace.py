"""PACE: the optimal preemptive schedule of all transfers of a link, and which to send as one (Bao et al., INFOCOM'20)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from . import _paths
from ._messages import Cost, costs
from .dag import Dag
from .decision import Decision, Message, Part
from .fusion import Tensor, fuse
from .jackson import Job, MachineSchedule, Slice
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
    the paper assumes of all (section IV-A).

    Sections II-C and VI-A: `messages` are the stretches of that schedule, one message each, in their order: what a wire is
    given that cannot be interrupted. Their sizes differ, and each pays a start-up of its own, which the paper's score does
    not count. `partition_bytes` is for senders that cut evenly; its size is ours (see partition_choice).

    Raises DagError for a bad time. `seed` is not used.
    """
    duration = times_ns(dag, times_us)
    release, tail = _paths.heads(dag, duration), _paths.tails(dag, duration)
    after_recv = _paths.has_recv_before(dag)
    groups: list[tuple[str, ...]] = []
    messages: list[Message] = []
    tail_of = {i: tail[i] for i in dag.recv_indices}
    cost = costs(dag, times_us)
    for link in dict.fromkeys(op.resource for op in dag.recvs):
        own = [i for i in dag.recv_indices if dag.ops[i].resource == link]
        free = [i for i in own if not after_recv[i]]
        others = [i for i in own if after_recv[i]]
        tensors = []
        for i in free:
            startup = round(cost[i].startup_us * 1000.0)
            # Where no sizes are known, the time of the bytes stands for them.
            size = cost[i].size_bytes or max(0, duration[i] - startup)
            tensors.append(Tensor(release[i], startup, max(0, duration[i] - startup), tail[i], size))
        fusion = fuse(tensors, [Job(release[i], duration[i], tail[i]) for i in others])
        for members, job in zip(fusion.groups, fusion.jobs, strict=True):
            for k in members:
                tail_of[free[k]] = job.tail
            if len(members) > 1:
                groups.append(tuple(dag.ops[free[k]].name for k in members))
        fused = [[free[k] for k in members] for members in fusion.groups] + [[i] for i in others]
        messages += _messages([[(dag.ops[i].name, cost[i]) for i in members] for members in fused], fusion.schedule)
    rank = _paths.ranks([tail_of[i] for i in dag.recv_indices], best_first=False)
    priorities = {op.name: priority for op, priority in zip(dag.recvs, rank, strict=True)}
    bytes_of = {dag.ops[i].name: one.size_bytes for i, one in cost.items()}
    # Where whole is best that is said as a size that cuts nothing: 0 would leave it to whoever cannot preempt.
    largest = max([*(sum(bytes_of[name] for name in group) for group in groups), *bytes_of.values()], default=0)
    return Decision(
        priorities,
        groups=groups,
        preemptive=True,
        partition_bytes=choose_partition(dag, Decision(priorities, groups=groups), times_us) or largest,
        policy="bytescheduler",
        messages=messages,
    )


def _messages(jobs: Sequence[Sequence[tuple[str, Cost]]], schedule: MachineSchedule) -> Iterator[Message]:
    """The messages of one link: a stretch of the schedule carries the bytes that its time allows, a share of every member.

    A job's start-up is at the beginning of its time; a stretch that has no more than that carries nothing. A job with
    a member of no bytes is not cut: it is sent where it begins. No message goes before its time ("from time slot t"): if
    the wire were free a moment before a more urgent recv is ready, a long message of little urgency would take it.
    """
    stretches: dict[int, list[Slice]] = {}
    for part in schedule.slices:
        stretches.setdefault(part.job, []).append(part)
    order: list[tuple[int, Message]] = []
    for job, members in enumerate(jobs):
        own = stretches.get(job, [Slice(job, schedule.ends[job], schedule.ends[job])])
        sizes = [cost.size_bytes for _, cost in members]
        startup = round(max(cost.startup_us for _, cost in members) * 1000.0)
        wire = sum(part.end - part.start for part in own) - startup
        if wire <= 0 or not all(sizes):
            own = own[:1]
        worked = -startup
        sent = [0] * len(members)
        for part in own:
            worked += part.end - part.start
            until = sizes if part is own[-1] else [size * max(0, worked) // wire for size in sizes]
            parts = [
                Part(name, end - begin) for (name, _), begin, end in zip(members, sent, until, strict=True) if end > begin
            ]
            if part is own[-1]:  # what has no bytes has a message all the same
                parts += [Part(name, 0) for (name, cost) in members if not cost.size_bytes]
            if parts:
                order.append((part.start, Message(tuple(parts), part.start / 1000.0)))
            sent = until
    order.sort(key=lambda item: item[0])
    yield from (message for _, message in order)
