"""What balanced parameter servers would bring: the bytes that each link of a step carries, and the busiest resource."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from tfsched.ordering import Dag


class Link(NamedTuple):
    """A link and its share of the step; times in µs.

    Attributes:
      balanced_us: its time if all links to the same receiver carried the same bytes.
    """

    name: str
    recvs: int
    bytes: int
    time_us: float
    balanced_us: float


class Balance(NamedTuple):
    """The links of a step, and the time in µs of its busiest resource: now, and with balanced links.

    No order makes a step shorter than its busiest resource needs.

    Attributes:
      several: whether a receiver has several links.
    """

    links: list[Link]
    several: bool
    busiest_us: float
    balanced_busiest_us: float


def balance_of(dag: Dag) -> Balance:
    """What each link carries, and what it would carry if the variables were spread evenly.

    Links are compared that lead to the same receiver: ``ps0>w0`` and ``ps1>w0``, not ``w0>ps0``. An even spread is what
    ``tfsched.placement`` comes near to, for it cuts large variables into a shard for each server.
    """
    times = dag.times_us()
    busy: dict[str, float] = defaultdict(float)
    sizes: dict[str, int] = defaultdict(int)
    counts: dict[str, int] = defaultdict(int)
    for op, time_us in zip(dag.ops, times, strict=True):
        busy[op.resource] += time_us
        sizes[op.resource] += op.size_bytes or 0
        counts[op.resource] += 1
    groups: dict[str, list[str]] = defaultdict(list)
    for name, resource in dag.resources.items():
        if resource.kind == "link" and counts[name]:
            groups[name.rpartition(">")[2] if ">" in name else ""].append(name)
    links = []
    for names in groups.values():
        total = sum(sizes[name] for name in names)
        for name in names:
            # By bytes, as placement decides; each link keeps its own time for a byte.
            share = total / len(names) / sizes[name] if sizes[name] else 1.0
            links.append(Link(name, counts[name], sizes[name], busy[name], busy[name] * share))
    others = [busy[name] for name, resource in dag.resources.items() if resource.kind != "link"]
    return Balance(
        links,
        any(len(names) > 1 for names in groups.values()),
        max([link.time_us for link in links] + others, default=0.0),
        max([link.balanced_us for link in links] + others, default=0.0),
    )
