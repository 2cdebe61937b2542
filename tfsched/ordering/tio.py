"""TIO, timing-independent ordering (TicTac, Algorithm 3): needs the shape of the DAG only."""

from __future__ import annotations

from collections.abc import Mapping

from ._groups import Groups
from .dag import Dag
from .registry import register


@register("tio")
def tio(dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0) -> dict[str, float]:
    """Return recv name -> M+ under the general time oracle.

    TicTac, section 4.3, Algorithm 3: with time 1 for a recv and 0 for other ops (equation 6), M+ is
    the smallest number of transfers that activates a computation which waits for this recv and at
    least one more; with several channels, the largest number on one channel. Recvs with the same M+
    keep the same priority, so that they may run in parallel. A recv without such a computation (M+
    is infinite) comes last, with the largest finite M+ plus one, as JSON has no infinity.

    `times_us` and `seed` are not used. O(ops + edges) set operations.
    """
    groups = Groups(dag)
    count = [s.bit_count() for s in groups.sets]
    expanded = bytearray(len(count))
    channel_masks = [0] * groups.channels
    for recv, channel in enumerate(groups.channel):
        channel_masks[channel] |= 1 << groups.bit[recv]
    most: dict[int, int] = {}

    def transfers(group: int) -> int:
        if len(channel_masks) == 1:
            return count[group]
        if group not in most:
            bits = groups.sets[group]
            most[group] = max((bits & mask).bit_count() for mask in channel_masks)
        return most[group]

    impending = [
        min(map(transfers, groups.frontier(groups.successors[recv], count, expanded)), default=None)
        for recv in range(groups.recvs)
    ]
    last = max((m for m in impending if m is not None), default=0) + 1
    return {op.name: float(last if m is None else m) for op, m in zip(dag.recvs, impending, strict=True)}
