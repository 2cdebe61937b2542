"""P3: layers by their place in the forward pass, in small slices sent one at a time (Jayarajan et al., MLSys 2019)."""

from __future__ import annotations

from collections.abc import Mapping

from .dag import Dag
from .decision import Decision
from .layer import layer
from .registry import register

# Section 5.2: slices of 50,000 parameters (float32).
SLICE_BYTES = 200_000


@register("p3")
def p3(
    dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0, partition_bytes: int = SLICE_BYTES
) -> Decision:
    """Return priorities by layer, in slices of `partition_bytes`, one on the wire at a time.

    P3, sections 4 and 5: parameter slicing and priority-based update, stop-and-wait. Every slice pays the link's start-up,
    which is what the later papers hold against it. `times_us` and `seed` are not used.
    """
    return Decision(layer(dag), partition_bytes=partition_bytes, policy="p3")
