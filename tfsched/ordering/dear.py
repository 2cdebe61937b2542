"""DeAR: reduce-scatter during back-propagation, all-gather during the next forward pass (Zhang et al., ICDCS 2023)."""

from __future__ import annotations

from collections.abc import Mapping

from . import _paths
from .dag import Dag, Op
from .decision import Decision
from .layer import layer
from .oracle import times_ns
from .registry import register


@register("dear")
def dear(dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0) -> Decision:
    """Return priorities by layer for the second half of each all-reduce, and one for all first halves.

    DeAR ("Decoupling the All-Reduce Primitive for Accelerating Distributed Deep Learning", section III) sends an all-reduce
    as its two halves. Reduce-scatters go in the order of back-propagation and before any all-gather: they have one
    priority, so that they leave as they become ready. All-gathers follow in the order in which the next forward pass needs
    the sums. Its fusion of tensors by a tuned buffer size is left to what sends them.

    Where transfers have no halves, from parameter servers, this is `layer`. `times_us` and `seed` are not used.
    """
    priorities = layer(dag)
    first = min(priorities.values(), default=0.0) - 1.0
    return Decision(priorities, contributions=dict.fromkeys(priorities, first), policy="bytescheduler")


def in_halves(dag: Dag, buffer_bytes: int) -> tuple[Dag, Decision]:
    """Return the dag with each all-reduce as its two halves, and DeAR's plan for it with tensors fused in buffers.

      x  becomes  x/first ─► x

    A half has half of the bytes' time and half of the start-up: reduce-scatter and all-gather of a ring each take N - 1 of
    its 2 (N - 1) rounds. First halves go as they become ready, in front of all second halves, which go in the order of the
    forward pass (section III). Tensors are fused in the order in which they become ready until a buffer has `buffer_bytes`,
    and a buffer is one message in each half; the authors' program has 25 MB, or tunes it by Bayesian optimisation.
    """
    links = {op.resource for op in dag.recvs}
    resources = [
        one._replace(bandwidth_bps=one.bandwidth_bps and 2 * one.bandwidth_bps, startup_us=one.startup_us / 2)
        if one.name in links
        else one
        for one in dag.resources.values()
    ]
    ops: list[Op] = []
    for op in dag.ops:
        if op.resource in links:
            half_us = None if op.time_us is None else op.time_us / 2
            ops.append(Op(f"{op.name}/first", op.resource, op.inputs, half_us, op.size_bytes))
            ops.append(Op(op.name, op.resource, (f"{op.name}/first",), half_us, op.size_bytes))
        else:
            ops.append(op)
    release = _paths.heads(dag, times_ns(dag))
    by_layer = layer(dag)
    groups: list[list[str]] = []
    for link in links:
        held = buffer_bytes
        for i in sorted((i for i in dag.recv_indices if dag.ops[i].resource == link), key=lambda i: (release[i], i)):
            size = dag.ops[i].size_bytes or 0
            if held + size > buffer_bytes:
                groups.append([])
                held = 0
            groups[-1].append(dag.ops[i].name)
            held += size
    first = min(by_layer.values(), default=0.0) - 1.0
    priorities = {**dict.fromkeys((f"{name}/first" for name in by_layer), first), **by_layer}
    both = [[f"{name}/first" for name in group] for group in groups] + groups
    return Dag(resources, ops), Decision(priorities, groups=[g for g in both if len(g) > 1], policy="bytescheduler")
