"""Explicit plans from planned messages: whole bytes, priorities and groups."""

from __future__ import annotations

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


def prefix_most(values: Sequence[int]) -> list[int]:
    """Return the values raised until they ascend."""
    result = list(values)
    for i in range(1, len(result)):
        result[i] = max(result[i], result[i - 1])
    return result


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
