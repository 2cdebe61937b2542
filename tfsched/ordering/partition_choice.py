"""How large pieces should be on a wire that cannot cut a message which it is sending."""

from __future__ import annotations

from collections.abc import Mapping

from tfsched._rules import chunks_of

from . import _paths
from ._messages import costs
from .dag import Dag
from .decision import Decision
from .evaluate import evaluate

# What a coarser cut may lose against the best one: fewer messages are worth that much.
TOLERANCE = 0.005
# Each candidate is a whole schedule, so beyond this many ops times messages the sizes are not tried.
MOST_OPS = 20_000


def choose_partition(dag: Dag, decision: Decision, times_us: Mapping[str, float] | None = None) -> int:
    """Return the largest partition size in bytes (0: whole) whose schedule is within 0.5 % of the best tried.

    Tried are whole recvs and powers of two from 64 KiB to the largest recv, each with one start-up per piece, without
    preemption. Where every recv is ready at the start nothing can be overtaken, and whole is best without trying; a dag of
    more than 20,000 ops gets 1 MiB (ByteScheduler's default is 4 MB) if anything becomes ready later.
    """
    before = _paths.heads(dag, [1] * len(dag.ops))
    if not any(before[i] for i in dag.recv_indices):
        return 0
    recv_bytes = [cost.size_bytes for cost in costs(dag, times_us).values()]
    largest = max(recv_bytes)
    if len(dag.ops) > MOST_OPS:
        return 1 << 20
    sizes = [size for size in (1 << k for k in range(62, 15, -1)) if size < largest]
    spans = []
    for size in [0, *sizes]:
        if sum(chunks_of(b, size) for b in recv_bytes) > MOST_OPS:
            break
        trial = Decision(decision, partition_bytes=size, groups=decision.groups)
        spans.append(evaluate(dag, trial, times_us).makespan_us)
    best = min(spans)
    return next(size for size, span in zip([0, *sizes], spans, strict=False) if span <= best * (1 + TOLERANCE))
