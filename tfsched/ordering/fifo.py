"""FIFO ordering: recvs in the order in which the dag lists them, the baseline."""

from __future__ import annotations

from collections.abc import Mapping

from .dag import Dag
from .registry import register


@register("fifo")
def fifo(dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0) -> dict[str, float]:
    """Return recv name -> its position 0..n-1 among the recvs of the file."""
    return {op.name: float(i) for i, op in enumerate(dag.recvs)}
