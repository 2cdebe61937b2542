"""ByteScheduler: layers by their place in the forward pass, in pieces, with a credit (Peng et al., SOSP'19)."""

from __future__ import annotations

from collections.abc import Mapping

from .dag import Dag
from .decision import Decision
from .layer import layer
from .registry import register

# The authors' documentation gives the defaults in parameters, 1,000,000 and 4,000,000; these are bytes of float32.
PARTITION_BYTES = 4_000_000
CREDIT_BYTES = 16_000_000


@register("bytescheduler")
def bytescheduler(
    dag: Dag,
    times_us: Mapping[str, float] | None = None,
    *,
    seed: int = 0,
    partition_bytes: int = PARTITION_BYTES,
    credit_bytes: int = CREDIT_BYTES,
) -> Decision:
    """Return priorities by layer, cut and handed over as ByteScheduler's core does.

    ByteScheduler, section 4.1 and Algorithm 1: a tensor's priority is the index of its layer in the forward pass, here
    the topological index of the first op that reads it; tensors are cut into pieces of `partition_bytes`, and the best
    piece that is ready is handed over while it fits into `credit_bytes`. Theorem 1: optimal for a chain of layers, with
    infinitely small pieces and no cost per message.

    Erratum: as printed, the algorithm drops a piece that does not fit and never starts one as large as the credit; here such
    a piece waits until nothing is on the wire. `times_us` and `seed` are not used.
    """
    return Decision(layer(dag), partition_bytes=partition_bytes, credit_bytes=credit_bytes, policy="bytescheduler")
