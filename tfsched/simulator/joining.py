"""The work of groups that are all-reduced: workers join the gradients before the exchange, and split the sums after it."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Sequence

from .cutting import Piece
from .workload import ComputeOp, Workload


def with_joins(workload: Workload, pieces: Sequence[Piece], join_us_per_mb: float) -> Workload:
    """The workload with two more ops for each group of the pieces, which take `join_us_per_mb` of its 10^6 bytes each.

      before                                        after

      backward/b ─► (gradient b) ─┐                 backward/b ─┐
      backward/a ─► (gradient a) ─┴─► exchange      backward/a ─┴─► join ─► exchange

      exchange ─┬─► (value a) ─► forward/a          exchange ─► split ─┬─► forward/a
                └─► (value b) ─► forward/b                             └─► forward/b

    A split goes before all other ops. A join waits: when the group's last gradient is there, TensorFlow's threads compute
    other ops, which they do to their ends, and then the join shares the processor with those that follow. So it comes behind
    as many whole ops as take as long as it does. Parameters whose parts travel in different messages are left as they are.
    """
    groups = _groups(pieces)
    if not groups or join_us_per_mb <= 0.0:
        return workload
    parameters = list(workload.parameters)
    joins: list[ComputeOp] = []
    ops: list[ComputeOp] = []  # splits first
    waits: dict[str, list[str]] = {}  # op -> the splits that it waits for
    for number, (members, size_bytes) in enumerate(groups.items()):
        makers = tuple(dict.fromkeys(op for i in members for op in parameters[i].made_by))
        if not makers:
            continue
        name = parameters[members[0]].name
        names = [f"{what} {number}: {name} and {len(members) - 1} more" for what in ("join", "split")]
        join, split = (_unused(name, workload.index) for name in names)
        time_us = size_bytes * join_us_per_mb / 1e6
        joins.append(ComputeOp(join, time_us, makers))
        ops.append(ComputeOp(split, time_us))
        for i in members:
            for reader in parameters[i].read_by:
                waits.setdefault(reader, []).append(split)
            parameters[i] = dataclasses.replace(parameters[i], read_by=(split,), made_by=(join,))
    for op in workload.ops:
        more = tuple(dict.fromkeys(waits.get(op.name, ())))
        ops.append(dataclasses.replace(op, inputs=(*op.inputs, *more)) if more else op)
    for one in joins:
        _insert(ops, one)
    return dataclasses.replace(workload, ops=tuple(ops), parameters=tuple(parameters))


def _insert(ops: list[ComputeOp], join: ComputeOp) -> None:
    """Puts a join behind as many whole ops that follow its inputs as take as long as it does."""
    position = 1 + max(i for i, op in enumerate(ops) if op.name in join.inputs)
    left_us = join.time_us
    while position < len(ops) and left_us > 0.0:
        left_us -= ops[position].time_us
        position += 1
    ops.insert(position, join)


def _groups(pieces: Sequence[Piece]) -> dict[tuple[int, ...], int]:
    """Members -> bytes, of several parameters each, none of which is elsewhere, too."""
    sizes: dict[tuple[int, ...], int] = {}
    for piece in pieces:
        members = tuple(sorted(piece.parameters))
        sizes[members] = sizes.get(members, 0) + piece.size_bytes
    places: dict[int, int] = {}
    for members in sizes:
        for i in members:
            places[i] = places.get(i, 0) + 1
    return {m: size for m, size in sizes.items() if len(m) > 1 and all(places[i] == 1 for i in m)}


def _unused(name: str, used: Container[str]) -> str:
    while name in used:
        name += "'"
    return name
