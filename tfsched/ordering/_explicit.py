"""Explicit plans from planned messages: whole bytes, priorities and groups."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ._messages import Cost, costs
from .chain import Gradient, Slot
from .dag import Dag
from .decision import Decision, Message, Part
from .layer import layer


def suffix_least(values: Sequence[int]) -> list[int]:
    """Return the values lowered until they ascend."""
    result = list(values)
    for i in range(len(result) - 2, -1, -1):
        result[i] = min(result[i], result[i + 1])
    return result


def opposed(gradients: Sequence[Gradient]) -> list[tuple[int, Gradient]]:
    """Return (position, gradient) of all, in an order in which neither releases nor tails descend.

    Where they do not ascend together some gradients are changed, to ones that are harder to serve: their tails are raised,
    or they are released later. Those that change have the least bytes: the others are a heaviest subsequence of ascending
    tails. Batch normalisation's statistics are made first and needed first, and of a few bytes: if they raised all later
    tails, a plan would see nothing but urgent gradients. O(N log N).
    """
    order = sorted(range(len(gradients)), key=lambda i: (gradients[i].release, gradients[i].tail, i))
    kept = set(_heaviest([gradients[i].tail for i in order], [gradients[i].wire + 1 for i in order]))
    tails = [gradients[order[place]].tail for place in sorted(kept)]
    releases = [gradients[order[place]].release for place in sorted(kept)]
    changed: list[tuple[int, int, int]] = []  # release, tail, position
    before = 0  # of those that are kept
    for place, i in enumerate(order):
        release, tail = gradients[i].release, gradients[i].tail
        if place in kept:
            before += 1
        else:
            tail = max(tail, tails[before - 1] if before else 0)
            sooner = bisect.bisect_left(tails, tail)  # of those that are kept, so many are less urgent
            release = max(release, releases[sooner - 1] if sooner else 0)
        changed.append((release, tail, i))
    result = []
    most = 0
    for release, tail, i in sorted(changed):
        most = max(most, tail)
        result.append((i, gradients[i]._replace(release=release, tail=most)))
    return result


def _heaviest(values: Sequence[int], weights: Sequence[int]) -> list[int]:
    """The places of a subsequence of values that do not descend, with the most weight."""
    ends: list[int] = []  # values at which subsequences end, ascending, and so are their weights
    best: list[tuple[int, int]] = []  # weight, last place
    previous: list[int] = []
    for place, (value, weight) in enumerate(zip(values, weights, strict=True)):
        at = bisect.bisect_right(ends, value)
        total = weight + (best[at - 1][0] if at else 0)
        previous.append(best[at - 1][1] if at else -1)
        if at and ends[at - 1] == value:
            at -= 1
            ends.pop(at)
            best.pop(at)
        ends.insert(at, value)
        best.insert(at, (total, place))
        while at + 1 < len(best) and best[at + 1][0] <= total:  # a later end that weighs no more is of no use
            ends.pop(at + 1)
            best.pop(at + 1)
    result = []
    place = best[-1][1] if best else -1
    while place >= 0:
        result.append(place)
        place = previous[place]
    return result[::-1]


def messages_of(
    dag: Dag, own: Sequence[int], cost: Mapping[int, Cost], gradients: Sequence[Gradient], slots: Iterable[Slot]
) -> Iterator[tuple[int, Message]]:
    """Slots in whole bytes: of a gradient the bytes that its time so far allows, rounded down, and all of it at its end."""
    sent_ns = [0] * len(own)
    sent_bytes = [0] * len(own)
    for slot in slots:
        parts = []
        for place, time in slot.parts:
            i, wire = own[place], gradients[place].wire
            size = cost[i].size_bytes
            sent_ns[place] += time
            # What has no bytes or no time is sent whole, where its last part is.
            until = size if sent_ns[place] == wire else size * sent_ns[place] // wire
            if until > sent_bytes[place] or (size == 0 and sent_ns[place] == wire):
                parts.append(Part(dag.ops[i].name, until - sent_bytes[place]))
            sent_bytes[place] = until
        if parts:
            yield slot.start, Message(tuple(parts), slot.start / 1000.0)


def decision_of(dag: Dag, times_us: Mapping[str, float] | None, messages: Sequence[tuple[int, Message]]) -> Decision:
    """Priorities by the first message of each recv; groups, for plans of whole transfers, are what is whole in one."""
    sizes = {dag.ops[i].name: one.size_bytes for i, one in costs(dag, times_us).items()}
    by_layer = layer(dag)
    first: dict[str, float] = {}
    groups: list[tuple[str, ...]] = []
    for rank, (_, message) in enumerate(messages):
        whole = tuple(part.recv for part in message.parts if part.size_bytes == sizes[part.recv])
        if len(whole) > 1:
            groups.append(whole)
        for part in message.parts:
            first.setdefault(part.recv, float(rank))
    last = len(messages) + max(by_layer.values(), default=0.0)
    priorities = {op.name: first.get(op.name, last + by_layer[op.name]) for op in dag.recvs}
    return Decision(priorities, groups=groups, policy="bytescheduler", messages=[message for _, message in messages])
