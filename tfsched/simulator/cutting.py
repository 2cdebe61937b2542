"""Messages as the pieces that travel: apart by server and direction, and cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tfsched._rules import bundles_of, chunk_bytes, chunks_of

from .errors import SimulatorError
from .workload import Workload

# Of one worker and step: more are a wrong unit, and would take minutes to list.
MAX_PIECES = 1_000_000


class Piece(NamedTuple):
    """One message of each step: parts of parameters that live on one server."""

    parameters: tuple[int, ...]
    size_bytes: int
    server: int
    label: str
    priority: float
    hold_us: float = 0.0  # pushed at the earliest so long after the step's first gradient op started
    pull_priority: float | None = None  # where that is another one
    # The parameters of its message, which were pushed as one: a server updates them when all that is pushed of it is there.
    group: tuple[int, ...] = ()
    only: str = ""  # "push" or "pull": what it carries goes the other way as pieces of its own


Parts = list[tuple[int, int]]  # parameter, bytes
# What travels as one, whether it is explicit (sent as it is, neither cut nor moved), and until when it is held back.
Planned = tuple[Parts, bool, float]


def split(
    plan: Sequence[Planned], workload: Workload, servers: Sequence[int]
) -> Iterable[tuple[Parts, float | None, float]]:
    """Messages of one server and one direction each, and their place in an explicit plan."""
    for position, (parts, explicit, hold_us) in enumerate(plan):
        apart: dict[tuple[int, bool, bool, tuple[str, ...]], Parts] = {}
        for i, size in parts:
            p = workload.parameters[i]
            apart.setdefault((servers[i], p.pulled, bool(p.made_by), p.asked_after), []).append((i, size))
        for one in apart.values():
            yield one, float(position) if explicit else None, hold_us


def cut(
    parts: Parts,
    workload: Workload,
    servers: Sequence[int],
    priorities: Sequence[float],
    partition: int,
    place: float | None,
) -> Iterable[Piece]:
    """The pieces of one message: those of an explicit one, which has a place, are the message itself."""
    names = [workload.parameters[i].name for i, _ in parts]
    label = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    total = sum(size for _, size in parts)
    priority = min(priorities[i] for i, _ in parts) if place is None else place
    partition = partition if place is None else 0
    count = chunks_of(total, partition)
    if count * len(parts) > MAX_PIECES:
        raise SimulatorError(f"{label} would leave in {count} pieces; give a larger partition_bytes")
    # A piece carries a share of every member: a message that is cut waits for all of them, and is there as a whole.
    members = tuple(dict.fromkeys(i for i, _ in parts))
    group = members if count > 1 and len(members) > 1 else ()
    for k, size in enumerate(chunk_bytes(total, partition)):
        name = label if count == 1 else f"{label}#{k}/{count}"
        yield Piece(members, size, servers[parts[0][0]], name, priority, group=group)


def bundled(plan: list[Planned], most: int) -> list[Planned]:
    """Small parameters in bundles of at most so many bytes, as the pass does it.

    TensorFlow packs the last layer's gradients first.
    """
    packed = plan[::-1]
    result = list(packed)
    for bundle in bundles_of([parts[0][1] for parts, _, _ in packed], most):
        result[bundle[0]] = ([packed[number][0][0] for number in bundle], False, 0.0)
        for number in bundle[1:]:
            result[number] = ([], False, 0.0)
    return [one for one in reversed(result) if one[0]]
