"""Random ordering: a seeded shuffle, what stock TensorFlow's transfers look like."""

from __future__ import annotations

import random
from collections.abc import Mapping

from .dag import Dag
from .registry import register


@register("random")
def random_order(dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0) -> dict[str, float]:
    """Return recv name -> distinct priority 0..n-1; the same seed gives the same order."""
    priorities = list(range(len(dag.recvs)))
    random.Random(seed).shuffle(priorities)
    return {op.name: float(p) for op, p in zip(dag.recvs, priorities, strict=True)}
