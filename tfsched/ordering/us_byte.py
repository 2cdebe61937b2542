"""US-Byte: blocks of unequal sizes, as long as back-propagation leaves the link free (Gao et al., TPDS 2024)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from . import _paths
from ._messages import costs
from .dag import Dag
from .decision import Decision, Message, Part
from .layer import layer
from .oracle import times_ns
from .registry import register

# What the trials of units and of priorities may cost together, in blocks.
MOST_BLOCKS = 50_000
# Units that are tried: powers of two from 64 KiB on.
SMALLEST_UNIT = 1 << 16


class Tensor(NamedTuple):
    """A gradient as US-Byte sees it: times in whole ns; `release` is its backward op's end, `forward` the op that needs
    it."""

    release: int
    startup: int
    wire: int
    size_bytes: int
    forward: int


class Block(NamedTuple):
    """Bytes of one tensor that travel as one message."""

    start: int
    end: int
    tensor: int
    size_bytes: int


def blocks_of(tensors: Sequence[Tensor], unit: int, urgency: Sequence[int]) -> list[Block]:
    """Return all blocks; tensors are in the order of the forward pass and released in the opposite one.

    First phase (the authors' algorithm 1): while back-propagation runs and a tensor waits, the most urgent one (least
    `urgency`) sends as many units as fill the time until the next gradient, rounded up; one if not even a start-up
    fits; all that is left of it if that fits. If the same tensor goes on after the next gradient, its block is lengthened
    instead: that saves a start-up. Second phase: what is left of each tensor is one block, in the order
    of the forward pass, which the paper derives to be optimal.
    """
    left = [tensor.size_bytes for tensor in tensors]
    done = [False] * len(tensors)
    result: list[Block] = []

    def time_of(t: int, size: int) -> int:
        tensor = tensors[t]
        return tensor.wire * size // tensor.size_bytes if tensor.size_bytes else tensor.wire

    def send(t: int, now: int, size: int) -> int:
        """Append a block, or lengthen the last; return its end."""
        before = result[-1] if result else None
        if before is not None and before.tensor == t and before.end == now:
            result[-1] = Block(before.start, now + time_of(t, size), t, before.size_bytes + size)
        else:
            result.append(Block(now, now + tensors[t].startup + time_of(t, size), t, size))
        left[t] -= size
        done[t] = left[t] == 0
        return result[-1].end

    releases = sorted({tensor.release for tensor in tensors})
    now = releases[0] if releases else 0
    for before, until in itertools.pairwise(releases):
        now = max(now, before)
        while now < until:
            waiting = [t for t, tensor in enumerate(tensors) if tensor.release <= before and not done[t]]
            if not waiting:
                break
            t = min(waiting, key=lambda t: (urgency[t], t))
            goes_on = bool(result) and result[-1].tensor == t and result[-1].end == now
            room = until - now - (0 if goes_on else tensors[t].startup)
            if time_of(t, left[t]) <= room or not tensors[t].wire:
                size = left[t]
            else:
                units = max(1, math.ceil(room * tensors[t].size_bytes / tensors[t].wire / unit))
                size = min(left[t], units * unit)
            now = send(t, now, size)
    now = max(now, releases[-1] if releases else 0)
    for t in range(len(tensors)):
        if not done[t]:
            now = send(t, now, left[t])
    return result


def step_ns(tensors: Sequence[Tensor], blocks: Sequence[Block]) -> int:
    """When the forward pass ends (the authors' algorithm 2); `forward` is the time from a tensor's use to the next's."""
    ready = [0] * len(tensors)
    for block in blocks:
        ready[block.tensor] = max(ready[block.tensor], block.end)
    now = max((tensor.release for tensor in tensors), default=0)
    for tensor, at in zip(tensors, ready, strict=True):
        now = max(now, at) + tensor.forward
    return now


def best_urgency(tensors: Sequence[Tensor], unit: int) -> tuple[int, list[int], list[Block], int]:
    """Return (step, urgency, blocks, blocks made in all): the authors' algorithm 3.

    It begins with the forward pass's order. From the last layer down, a tensor that begins in the first phase is tried with
    the urgency to go on until it is whole: it takes the place of the layer whose gradient is made while it would end. What
    makes the step shorter is kept.
    """
    count = len(tensors)
    urgency = list(range(count))
    blocks = blocks_of(tensors, unit, urgency)
    best = step_ns(tensors, blocks)
    made = len(blocks)
    at = count - 1
    while at >= 1:
        first = next((block for block in blocks if block.tensor == at and block.start < tensors[0].release), None)
        if first is None:
            at -= 1
            continue
        whole = first.start + tensors[at].startup + tensors[at].wire
        # Of the layers below, the one behind whose gradient it would end, if that is before the next one.
        place = next((k for k in range(at, 0, -1) if tensors[k].release < whole <= tensors[k - 1].release), 0)
        trial = urgency.copy()
        trial[at] = urgency[place]
        for j in range(place, at):
            trial[j] += 1
        trial_blocks = blocks_of(tensors, unit, trial)
        made += len(trial_blocks)
        step = step_ns(tensors, trial_blocks)
        if step < best:
            best, urgency, blocks, at = step, trial, trial_blocks, place
        at -= 1
        if made > MOST_BLOCKS:
            break
    return best, urgency, blocks, made


@register("us-byte")
def us_byte(dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0) -> Decision:
    """Return US-Byte's blocks as explicit messages, each link by itself.

    US-Byte (Gao, Hu, Mashhadi, Jin, Xiao, Wu: "US-Byte: An Efficient Communication Framework for Scheduling Unequal-Sized
    Tensor Blocks in Distributed Deep Learning", IEEE TPDS 35(1), 2024, doi 10.1109/TPDS.2023.3331372). The text of the paper
    is not open. What is done here follows its abstract (two phases, the second solved in closed form, the first by a
    low-complexity algorithm) and the planner in the authors' program (ZJU-CNLAB/US-Byte, dist_trainer_US-Byte.py: algorithms
    1 to 3, whose names `blocks_of`, `step_ns` and `best_urgency` quote).

    Three differences. A block that is lengthened keeps what it had: the program counts its units a second time. The unit
    is the authors' partition size, which they tune by Bayesian optimisation: here the best of powers of two from
    64 KiB under the model. The program has one size of unit for all workers and no merging of tensors, and so has this.

    Recvs that wait for other recvs are left to their priority, that of `layer`. Raises DagError for a bad time. `seed` is
    not used.
    """
    duration = times_ns(dag, times_us)
    release, tail = _paths.heads(dag, duration), _paths.tails(dag, duration)
    after_recv = _paths.has_recv_before(dag)
    cost = costs(dag, times_us)
    priorities = layer(dag)
    messages: list[tuple[int, Message]] = []
    for link in dict.fromkeys(op.resource for op in dag.recvs):
        own = [i for i in dag.recv_indices if dag.ops[i].resource == link and not after_recv[i]]
        own.sort(key=lambda i: (-tail[i], -release[i], priorities[dag.ops[i].name], i))
        tensors = []
        for place, i in enumerate(own):
            startup = round(cost[i].startup_us * 1000.0)
            until = tail[own[place + 1]] if place + 1 < len(own) else 0
            tensors.append(Tensor(release[i], startup, max(0, duration[i] - startup), cost[i].size_bytes, tail[i] - until))
        for block in _best_unit(tensors):
            name = dag.ops[own[block.tensor]].name
            messages.append((block.start, Message((Part(name, block.size_bytes),), block.start / 1000.0)))
    messages.sort(key=lambda item: item[0])
    return Decision(priorities, groups=(), policy="bytescheduler", messages=[message for _, message in messages])


def _best_unit(tensors: Sequence[Tensor]) -> list[Block]:
    """The blocks under the best unit; ties go to the larger one."""
    if not tensors:
        return []
    best: tuple[int, list[Block]] | None = None
    left = MOST_BLOCKS
    for unit in _units(max(tensor.size_bytes for tensor in tensors)):
        step, _, blocks, made = best_urgency(tensors, unit)
        if best is None or step < best[0]:
            best = (step, blocks)
        left -= made
        if left < 0:
            break
    assert best is not None
    return best[1]


def _units(largest: int) -> Iterator[int]:
    unit = SMALLEST_UNIT
    while unit < largest:
        unit *= 2
    while unit >= SMALLEST_UNIT:
        yield unit
        unit //= 2
