"""DynaComm: transfers joined into segments by a dynamic programme (Cai et al., JSAC 2022)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from . import _paths
from ._messages import costs
from .dag import Dag
from .decision import Decision
from .oracle import times_ns
from .registry import register


def forward_segments(startup: int, wires: Sequence[int], computes: Sequence[int]) -> tuple[int, list[tuple[int, int]]]:
    """Return (end of the forward pass, segments (first, end)): pulls that are all ready at 0, in the forward pass's order.

    F(k, l), the earliest end of the first l layers if their parameters came in k segments: the k-th has arrived after k
    start-ups and the bytes of l layers, however these were cut, so F(k, l) is the least over j < l of
    max(F(k - 1, j), k * startup + bytes of l) + computes of j..l. O(L^3).
    """
    count = len(wires)
    bytes_until = [0]
    compute_until = [0]
    for wire, compute in zip(wires, computes, strict=True):
        bytes_until.append(bytes_until[-1] + wire)
        compute_until.append(compute_until[-1] + compute)
    infinite = bytes_until[-1] + compute_until[-1] + startup * (count + 1) + 1
    before = [0] + [infinite] * count
    came: list[list[int]] = []
    best, best_k = infinite, 0
    for k in range(1, count + 1):
        now = [infinite] * (count + 1)
        origin = [0] * (count + 1)
        for upto in range(k, count + 1):
            arrived = k * startup + bytes_until[upto]
            for j in range(k - 1, upto):
                end = max(before[j], arrived) + compute_until[upto] - compute_until[j]
                if end < now[upto]:
                    now[upto], origin[upto] = end, j
        came.append(origin)
        if now[count] < best:
            best, best_k = now[count], k
        before = now
        if k * startup + bytes_until[-1] >= best:  # more segments arrive later than this ends
            break
    segments: list[tuple[int, int]] = []
    end = count
    for k in range(best_k - 1, -1, -1):
        segments.append((came[k][end], end))
        end = came[k][end]
    return (best if count else 0), segments[::-1]


def backward_segments(startup: int, wires: Sequence[int], releases: Sequence[int]) -> tuple[int, list[tuple[int, int]]]:
    """Return (end of the last push, segments (first, end)): gradients in the order in which they are made, `releases`
    ascend.

    B(l), the earliest time at which the first l gradients are through, is the least over j < l of
    max(B(j), releases of l) + startup + bytes of j..l: what is through earlier never harms. O(L^2).
    """
    count = len(wires)
    bytes_until = [0]
    for wire in wires:
        bytes_until.append(bytes_until[-1] + wire)
    through, origin = [0], [0]
    for upto in range(1, count + 1):
        options = [
            (max(through[j], releases[upto - 1]) + startup + bytes_until[upto] - bytes_until[j], j)
            for j in range(upto - 1, -1, -1)
        ]
        end, j = min(options, key=lambda option: option[0])
        through.append(end)
        origin.append(j)
    segments: list[tuple[int, int]] = []
    end = count
    while end:
        segments.append((origin[end], end))
        end = origin[end]
    return through[-1], segments[::-1]


# The programme of the pulls is cubic: beyond this many, neighbours are joined first.
MOST_PULLS = 160


@register("dynacomm")
def dynacomm(dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0) -> Decision:
    """Return DynaComm's segments as groups, each link by itself.

    DynaComm (Cai et al., "DynaComm: Accelerating Distributed CNN Training between Edges and Clouds through Dynamic
    Communication Scheduling", IEEE JSAC 40(2), 2022; arXiv 2101.07968) joins adjacent layers' transfers into segments, each
    of which costs one start-up: pulls in the order of the forward pass so that it ends early, pushes in the order of
    back-propagation so that the last is through early. Nothing is cut within a layer and no order is changed. The
    recurrences are derived here from the abstract's problem, since only its abstract was at hand: `forward_segments` and
    `backward_segments` are exact for it (tested against all segmentations), as the paper claims of its own.

    Where all recvs of a link are ready at the start they are pulls, else gradients. The paper's step has a barrier: the
    tails of gradients do not count. Recvs that wait for other recvs stay alone. Raises DagError for a bad time. `seed` is
    not used.
    """
    duration = times_ns(dag, times_us)
    release, tail = _paths.heads(dag, duration), _paths.tails(dag, duration)
    after_recv = _paths.has_recv_before(dag)
    cost = costs(dag, times_us)
    groups: list[tuple[str, ...]] = []
    for link in dict.fromkeys(op.resource for op in dag.recvs):
        own = [i for i in dag.recv_indices if dag.ops[i].resource == link and not after_recv[i]]
        if not own:
            continue
        own.sort(key=lambda i: (release[i], -tail[i], i))
        startup = max(round(cost[i].startup_us * 1000.0) for i in own)
        wires = [max(0, duration[i] - round(cost[i].startup_us * 1000.0)) for i in own]
        if release[own[-1]] > release[own[0]]:
            _, segments = backward_segments(startup, wires, [release[i] for i in own])
        else:
            step = -(-len(own) // MOST_PULLS)
            starts = [*range(0, len(own), step), len(own)]
            tails = [*(tail[own[at]] for at in starts[:-1]), 0]
            joined = [sum(wires[a:b]) for a, b in itertools.pairwise(starts)]
            _, coarse = forward_segments(startup, joined, [a - b for a, b in itertools.pairwise(tails)])
            segments = [(starts[first], starts[end]) for first, end in coarse]
        groups += [tuple(dag.ops[i].name for i in own[first:end]) for first, end in segments if end - first > 1]
    order = sorted(dag.recv_indices, key=lambda i: (release[i], -tail[i], i))
    place = {i: float(k) for k, i in enumerate(order)}
    priorities = {dag.ops[i].name: place[i] for i in dag.recv_indices}
    return Decision(priorities, groups=groups, policy="bytescheduler")
