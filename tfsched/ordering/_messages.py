"""The messages of a Decision: which bytes of which recvs travel together, and what each message costs."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tfsched._rules import chunk_bytes, chunks_of

from ._checks import show
from .dag import Dag, DagError
from .decision import Decision, Message
from .registry import OrderingError

# What a schedule may have; a size that was mistyped would otherwise take forever.
MOST_MESSAGES = 1_000_000


class Cost(NamedTuple):
    """What a recv costs alone: its link's start-up and the time of its bytes, in µs."""

    startup_us: float
    wire_us: float
    size_bytes: int


class Planned(NamedTuple):
    """One message: it goes before those of a larger key."""

    link: str
    key: tuple[float, float, int]
    recvs: tuple[int, ...]  # positions in the dag
    startup_us: float
    wire_us: float
    size_bytes: int
    not_before_us: float


def costs(dag: Dag, times_us: Mapping[str, float] | None = None) -> dict[int, Cost]:
    """Return per recv (position in the dag) its Cost.

    A time that is given includes the start-up. A recv without a size has the bytes that its link carries in its time; on a
    link without a bandwidth it has 0 bytes and cannot be cut.
    """
    duration_us = dag.times_us(times_us)
    result = {}
    for i in dag.recv_indices:
        op = dag.ops[i]
        link = dag.resources[op.resource]
        startup_us = min(link.startup_us, duration_us[i])
        wire_us = duration_us[i] - startup_us
        size = op.size_bytes
        if size is None:
            size = round(wire_us * link.bandwidth_bps / 8e6) if link.bandwidth_bps else 0
        result[i] = Cost(startup_us, wire_us, size)
    return result


def plan_messages(dag: Dag, decision: Decision, times_us: Mapping[str, float] | None = None) -> list[Planned]:
    """Return the messages of all links. Raises OrderingError for a group or a plan that cannot be sent, DagError for a
    priority that is no number or a bad time."""
    cost = costs(dag, times_us)
    priority = {i: _priority(dag.ops[i].name, decision) for i in dag.recv_indices}
    position = {dag.ops[i].name: i for i in dag.recv_indices}
    result: list[Planned] = []
    taken: set[int] = set()
    # A wire that can cut a message anywhere need not be given pieces.
    unit = 0 if decision.preemptive else decision.partition_bytes

    def add(members: Sequence[int], key: tuple[float, float], size_bytes: int) -> None:
        """Send the recvs as one message, or in pieces that carry a share of each."""
        if len(result) + chunks_of(size_bytes, unit) > MOST_MESSAGES:
            raise OrderingError(
                f"pieces of {unit} bytes would be more than {MOST_MESSAGES} messages; give a larger partition"
            )
        for piece, piece_bytes in enumerate(chunk_bytes(size_bytes, unit)):
            fraction = piece_bytes / size_bytes if size_bytes else 1.0
            result.append(_join(dag, [(i, fraction) for i in members], (*key, piece), cost, piece_bytes, 0.0))

    if decision.messages and not decision.preemptive:
        taken = _add_explicit(dag, decision.messages, position, cost, result)
    else:
        for group in decision.groups:
            members = [_find(name, position) for name in group]
            if members:
                key = min((priority[i], float(i)) for i in members)
                add(members, key, sum(cost[i].size_bytes for i in members))
                taken.update(members)
    for i in dag.recv_indices:
        if i not in taken:
            add([i], (priority[i], float(i)), cost[i].size_bytes)
    return result


def _priority(name: str, priorities: Mapping[str, float]) -> float:
    value = priorities.get(name, math.inf)
    if not isinstance(value, numbers.Real) or math.isnan(value):
        raise DagError(f"the priority of recv op {show(name)} is {show(value)}; give a number")
    return float(value)


def _find(name: str, position: Mapping[str, int]) -> int:
    if name not in position:
        raise OrderingError(f"the decision sends {show(name)}, which is no recv of the dag; leave it out")
    return position[name]


def _join(
    dag: Dag,
    parts: Sequence[tuple[int, float]],
    key: tuple[float, float, int],
    cost: Mapping[int, Cost],
    size_bytes: int,
    not_before_us: float,
) -> Planned:
    links = sorted({dag.ops[i].resource for i, _ in parts})
    if len(links) != 1:
        raise OrderingError(f"one message goes over the links {', '.join(map(show, links))}; send one per link")
    return Planned(
        links[0],
        key,
        tuple(dict.fromkeys(i for i, _ in parts)),
        max(cost[i].startup_us for i, _ in parts),
        sum(cost[i].wire_us * fraction for i, fraction in parts),
        size_bytes,
        not_before_us,
    )


def _add_explicit(
    dag: Dag,
    messages: Sequence[Message],
    position: Mapping[str, int],
    cost: Mapping[int, Cost],
    result: list[Planned],
) -> set[int]:
    """Append the messages of an explicit plan; return the recvs that it sends. They go before all others."""
    sent = dict.fromkeys(position.values(), 0)
    times = dict.fromkeys(position.values(), 0)
    for rank, message in enumerate(messages):
        parts = []
        for part in message.parts:
            i = _find(part.recv, position)
            sent[i] += part.size_bytes
            times[i] += 1
            parts.append((i, part.size_bytes / cost[i].size_bytes if cost[i].size_bytes else 1.0))
        if not parts:
            raise OrderingError(f"message {rank} of the decision is empty; leave it out")
        size_bytes = sum(part.size_bytes for part in message.parts)
        result.append(_join(dag, parts, (-math.inf, float(rank), 0), cost, size_bytes, message.not_before_us))
    for i, count in times.items():
        if count and (sent[i] != cost[i].size_bytes or (count > 1 and not sent[i])):
            name = dag.ops[i].name
            raise OrderingError(
                f"the messages send {sent[i]} bytes of {show(name)}, which has {cost[i].size_bytes}; send all"
            )
    return {i for i, count in times.items() if count}
