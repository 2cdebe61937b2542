"""DeAR: reduce-scatter during back-propagation, all-gather during the next forward pass (Zhang et al., ICDCS 2023)."""

from __future__ import annotations

from collections.abc import Mapping

from .dag import Dag
from .decision import Decision
from .layer import layer
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
