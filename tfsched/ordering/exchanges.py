"""All-reduces of one training step as a DAG: when each gradient is ready, and when the next forward pass needs its sum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .dag import Dag, Op, Resource

COMPUTE, LINK = "worker/compute", "all-reduce"


class AllReduce(NamedTuple):
    """One tensor that is all-reduced.

    Attributes:
      name: of the recv that stands for its all-reduce.
      size_bytes: of the tensor; None where no sizes are known.
      ready_us: when back-propagation has made it, in µs from the step's beginning.
      needed_us: when a forward pass first uses what is updated with it, likewise; None if it does not.
    """

    name: str
    size_bytes: int | None
    ready_us: float
    needed_us: float | None


def exchange_dag(gradients: Iterable[AllReduce], bandwidth_bps: float | None = None, startup_us: float = 0.0) -> Dag:
    """The step that training repeats: what is left of back-propagation, the all-reduces, the next forward pass.

      ready/c ─► ready/b ─► ready/a ─► begin ─────┐
         │          │          └─► a ─► use/a ◄───┘
         │          └─► b ──────────────► use/b ◄── use/a
         └─► c ─────────────────────────────► use/c ◄── use/b

    Two chains, for one worker's ops run in some order, and this is the one that was seen: a gradient's release is the
    longest path before its recv, and its tail the time from its first use to the end of the forward pass. That end is when
    the step's first gradient is there. Recvs are listed in the order in which they become ready.

    Args:
      gradients: in any order; of gradients that are ready or needed at the same time the first goes first.
      bandwidth_bps: bits per second at which a tensor's bytes are all-reduced, None where that is not known.
      startup_us: what each message costs besides.

    Raises DagError for names given twice, bad times and sizes, and for no gradients.
    """
    given = list(gradients)
    ops: list[Op] = []
    ready = sorted(given, key=lambda one: one.ready_us)
    before_us = ready[0].ready_us if ready else 0.0
    after: tuple[str, ...] = ()
    for gradient in ready:
        ops.append(Op(f"ready/{gradient.name}", COMPUTE, after, gradient.ready_us - before_us))
        before_us, after = gradient.ready_us, (f"ready/{gradient.name}",)
        time_us = None if bandwidth_bps else 1.0
        ops.append(Op(gradient.name, LINK, after, time_us, gradient.size_bytes))
    used = sorted((one.needed_us, place) for place, one in enumerate(given) if one.needed_us is not None)
    # What has no variable may still be used: it is as late as can be.
    end_us = max([ready[0].ready_us if ready else 0.0, *(needed_us for needed_us, _ in used)])
    if used:
        ops.append(Op("begin", COMPUTE, after, max(0.0, used[0][0])))
        after = ("begin",)
    for number, (needed_us, place) in enumerate(used):
        until_us = used[number + 1][0] if number + 1 < len(used) else end_us
        name = given[place].name
        ops.append(Op(f"use/{name}", COMPUTE, (name, *after), until_us - needed_us))
        after = (f"use/{name}",)
    return Dag([Resource(COMPUTE, "compute"), Resource(LINK, "link", bandwidth_bps, startup_us)], ops)
