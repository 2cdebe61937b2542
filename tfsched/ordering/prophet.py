"""Prophet: gradient blocks that are through before a more urgent gradient is generated (Zhang et al., ICPP'21)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from . import _paths
from ._messages import costs
from .dag import Dag
from .decision import Decision, Message, Part
from .layer import layer
from .oracle import times_ns
from .registry import register

# Gradients are cut into partitions as in BytePS, on which the authors built; section 5.1 gives P3 the same 4 MB.
PARTITION_BYTES = 4_000_000


class Gradient(NamedTuple):
    """A gradient in order of priority: when it is generated, what its message costs; times in whole units."""

    generated: int
    startup: int
    wire: int
    size_bytes: int


class Block(NamedTuple):
    """One message: it starts at `start` and carries (gradient, bytes)."""

    start: int
    parts: tuple[tuple[int, int], ...]


def gradient_blocks(gradients: Sequence[Gradient], partition_bytes: int = 0) -> list[Block]:
    """Return the messages of Prophet's Algorithm 1; gradient 0 is the most urgent. 0 bytes: gradients are never cut.

    While back-propagation goes on, the most urgent gradients at hand are assembled into a block, partition by partition, as
    long as the block is through before a more urgent gradient is generated (lines 5-11, constraint 11). Once gradient 0 is
    there, which starts at once (line 17), what is left is sent in order of priority, each gradient by itself (lines 13-14).

    Readings: "back-propagation" ends with the last generation, which is gradient 0's in the paper's chain. A^(q), printed
    as min |c^(q) - c^(j)| over j < q, is the time until the next generation of such a j: in the stepwise pattern many
    gradients have the same c, and as printed only one of them could ever be sent before gradient 0. A block is one
    message and pays one start-up, which is the paper's f(s, B) of equation 10. Equation 4, by which a parameter is back
    after 2 E, push and pull, is part of the objective (6) and not of the algorithm: what is sent when does not depend on it.
    """
    left = [gradient.size_bytes for gradient in gradients]
    sent = [0] * len(gradients)  # time of what has been sent
    blocks: list[Block] = []
    # Time -> the gradients that are generated then, the most urgent first.
    coming: dict[int, list[int]] = {}
    for q, gradient in enumerate(gradients):
        coming.setdefault(gradient.generated, []).append(q)
    events = sorted(coming)

    def fitting(q: int, room: float) -> tuple[int, int, bool]:
        """What of q fits into `room`, in whole partitions: bytes, their time, and whether that is all of it."""
        wire, total = gradients[q].wire, gradients[q].size_bytes
        rest = wire - sent[q]
        if rest <= room:
            return left[q], rest, True
        if room < 0 or not partition_bytes or not left[q]:
            return 0, 0, False
        # The most bytes b with wire * (sent bytes + b) // total - sent[q] <= room.
        most = ((int(room) + sent[q] + 1) * total - 1) // wire - (total - left[q])
        size = most // partition_bytes * partition_bytes
        return size, wire * (total - left[q] + size) // total - sent[q], False

    ready: list[int] = []
    at = 0  # events before this one have happened
    now = events[0] if events else 0
    while events and now < events[-1]:
        while events[at] <= now:
            for q in coming[events[at]]:
                heapq.heappush(ready, q)
            at += 1
        parts: list[tuple[int, int]] = []
        used = 0
        while ready:
            q = ready[0]
            deadline = next((events[k] for k in range(at, len(events)) if coming[events[k]][0] < q), math.inf)
            startup = 0 if parts else gradients[q].startup
            size, time, all_of_it = fitting(q, deadline - now - used - startup)
            if size or all_of_it:
                parts.append((q, size))
                used += startup + time
                left[q] -= size
                sent[q] += time
            if not all_of_it:
                break
            heapq.heappop(ready)
        if parts:
            blocks.append(Block(now, tuple(parts)))
        now = now + used if used else events[at]
    for happened in events[at:]:
        ready.extend(coming[happened])
    for q in sorted(ready):
        blocks.append(Block(now, ((q, left[q]),)))
        now += gradients[q].startup + gradients[q].wire - sent[q]
    return blocks


@register("prophet")
def prophet(
    dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0, partition_bytes: int = PARTITION_BYTES
) -> Decision:
    """Return priorities by layer and the messages of Prophet's Algorithm 1, with each link by itself.

    Prophet (section 4.1): see `gradient_blocks`. Priorities are those of `layer`. c^(i) is the longest path before the
    transfer, in place of the profile of the authors: several have the same c^(i), the stepwise pattern of section 2.2, only
    where the dag says so, while the authors' framework collected gradients before it sent them. Recvs that wait for other
    recvs are left to their priority, as their time is not known beforehand. `groups` are the blocks of
    whole gradients, for a wire that takes no explicit messages.
    Raises DagError for a bad time. `seed` is not used.
    """
    duration = times_ns(dag, times_us)
    priorities = layer(dag)
    generated = _paths.heads(dag, duration)
    after_recv = _paths.has_recv_before(dag)
    cost = costs(dag, times_us)
    messages: list[Message] = []
    groups: list[tuple[str, ...]] = []
    for link in dict.fromkeys(op.resource for op in dag.recvs):
        own = [i for i in dag.recv_indices if dag.ops[i].resource == link and not after_recv[i]]
        own.sort(key=lambda i: priorities[dag.ops[i].name])
        gradients = []
        for i in own:
            startup = round(cost[i].startup_us * 1000.0)
            wire = max(0, duration[i] - startup)
            gradients.append(Gradient(generated[i], startup, wire, cost[i].size_bytes))
        for block in gradient_blocks(gradients, partition_bytes):
            parts = tuple(Part(dag.ops[own[q]].name, size) for q, size in block.parts)
            messages.append(Message(parts, block.start / 1000.0))
            whole = tuple(
                part.recv for part, (q, size) in zip(parts, block.parts, strict=True) if size == gradients[q].size_bytes
            )
            if len(whole) > 1:
                groups.append(whole)
    return Decision(priorities, partition_bytes=partition_bytes, groups=groups, messages=messages, policy="bytescheduler")
