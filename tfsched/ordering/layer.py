"""Layer ordering: by the topological index of a recv's first consumer."""

from __future__ import annotations

from collections.abc import Mapping

from .dag import Dag
from .registry import register


@register("layer")
def layer(dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0) -> dict[str, float]:
    """Return recv name -> topological index of the first op that reads it.

    This is ByteScheduler's priority (Peng et al., SOSP'19: a layer's index in the forward pass) for
    a DAG. Recvs of one consumer (a layer's weights and bias) are equal; a recv that nobody reads
    comes last.
    """
    position = [0] * len(dag.ops)
    for rank, i in enumerate(dag.topological_order):
        position[i] = rank
    last = len(dag.ops)
    return {dag.ops[i].name: float(min((position[j] for j in dag.consumers[i]), default=last)) for i in dag.recv_indices}
