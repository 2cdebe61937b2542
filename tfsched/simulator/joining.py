"""The work of groups that are all-reduced: workers join the gradients before the exchange, and split the sums after it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .cutting import Piece
from .workload import ComputeOp, Workload


def with_joins(workload: Workload, pieces: Sequence[Piece], join_us_per_mb: float) -> Workload:
    """The workload with two more ops for each group of the pieces, which take `join_us_per_mb` of its 10^6 bytes each.

      before                                        after

      backward/b ─► (gradient b) ─┐                 backward/b ─┐
      backward/a ─► (gradient a) ─┴─► exchange      backward/a ─┴─► join ─► exchange

      exchange ─┬─► (value a) ─► forward/a          exchange ─► split ─┬─► forward/a
                └─► (value b) ─► forward/b                             └─► forward/b

    They go before all other ops that could run: a group should leave soon. Parameters whose parts travel in different
    messages are left as they are.
    """
    groups = _groups(pieces)
    if not groups or join_us_per_mb <= 0.0:
        return workload
    parameters = list(workload.parameters)
    splits: list[ComputeOp] = []
    behind: dict[int, list[ComputeOp]] = {}  # an op's position -> joins
    inputs: dict[str, list[str]] = {}  # op -> the splits that it waits for
    for number, (members, size_bytes) in enumerate(groups.items()):
        makers = tuple(dict.fromkeys(op for i in members for op in parameters[i].made_by))
        if not makers:
            continue
        name = parameters[members[0]].name
        names = [f"{what} {number}: {name} and {len(members) - 1} more" for what in ("join", "split")]
        join, split = (_unused(name, workload) for name in names)
        time_us = size_bytes * join_us_per_mb / 1e6
        behind.setdefault(max(workload.index[op] for op in makers), []).append(ComputeOp(join, time_us, makers))
        splits.append(ComputeOp(split, time_us))
        for i in members:
            for reader in parameters[i].read_by:
                inputs.setdefault(reader, []).append(split)
            parameters[i] = dataclasses.replace(parameters[i], read_by=(split,), made_by=(join,))
    ops = splits
    for position, op in enumerate(workload.ops):
        waits = tuple(dict.fromkeys(inputs.get(op.name, ())))
        ops.append(dataclasses.replace(op, inputs=(*op.inputs, *waits)) if waits else op)
        ops += behind.get(position, ())
    return dataclasses.replace(workload, ops=tuple(ops), parameters=tuple(parameters))


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


def _unused(name: str, workload: Workload) -> str:
    while name in workload.index:
        name += "'"
    return name
