"""Reads one traced step's own op times: computing, transfers, makespan and the bounds they give."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

# TensorFlow's label of a transfer: "[4.0MB] [940.1Mb/s] edge_8_name from /job:ps/... to /job:..."
_ROUTE = re.compile(r" from (/job:\S+) to (/job:\S+)$")


@dataclasses.dataclass(frozen=True)
class StepSample:
    """One step of one worker, all from that step's own trace.

    Attributes:
        makespan_s: first start to last end of the worker's operations and transfers.
        compute_s: how long its computing resource was in use: the time during which at least one operation ran.
        links_s: sum of the transfers' service times, for direction "in" and "out".
    """

    makespan_s: float
    compute_s: float
    links_s: dict[str, float]

    @property
    def upper_s(self) -> float:
        """Everything one after another: the sum of all times."""
        return self.compute_s + sum(self.links_s.values())

    @property
    def lower_s(self) -> float:
        """Everything at once: the busiest resource's sum."""
        return max(self.compute_s, *self.links_s.values())

    @property
    def efficiency(self) -> float:
        """Ordering efficiency E of the step; NaN where the bounds coincide."""
        gap_s = self.upper_s - self.lower_s
        return (self.upper_s - self.makespan_s) / gap_s if gap_s > 0 else float("nan")


def service_times(transfers: Iterable[tuple[float, float]]) -> list[float]:
    """Time that each transfer had the link to itself, from the (start, end) of each.

    A transfer is "started" when it is requested, mostly long before its turn. In order of
    completion, the k-th was served from the later of its start and the previous end:
    service_k = end_k - max(end_{k-1}, start_k).
    """
    previous_end = float("-inf")
    times = []
    for start, end in sorted(transfers, key=lambda transfer: transfer[1]):
        times.append(end - max(previous_end, start))
        previous_end = end
    return times


def busy_time(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of (start, end) spans.

    The paper's computing resource runs one op at a time, and its busy time is the sum of the op times. Ours runs several at
    once on a few cores: then each takes longer, and the sum grows with their number and not with the work.
    """
    total = 0.0
    end_so_far = float("-inf")
    for start, end in sorted(spans):
        total += max(end - max(start, end_so_far), 0.0)
        end_so_far = max(end_so_far, end)
    return total


def sample_of_step(step_stats: Any, worker: str) -> StepSample:
    """The sample of `worker` (e.g. "/job:worker/replica:0/task:0") in a RunMetadata's step_stats.

    The worker's host has one link: transfers from several parameter servers share its "in" side.
    """
    spans_us: list[tuple[float, float]] = []
    running_us: list[tuple[float, float]] = []
    transfers_us: dict[str, list[tuple[float, float]]] = {"in": [], "out": []}
    for device in step_stats.dev_stats:
        on_worker = device.device.startswith(worker + "/")
        for node in device.node_stats:
            begin_us = float(node.all_start_micros)
            span = (begin_us + node.op_start_rel_micros, begin_us + node.op_end_rel_micros)
            if node.node_name == "RecvTensor":
                route = _ROUTE.search(node.timeline_label)
                if route is None:
                    continue
                direction = {True: "in", False: "out"}[route.group(2).startswith(worker + "/")]
                if direction == "out" and not route.group(1).startswith(worker + "/"):
                    continue
                transfers_us[direction].append(span)
            elif on_worker and not _is_waiting(node.timeline_label):
                running_us.append(span)
            else:
                continue
            spans_us.append(span)
    if not spans_us:
        raise ValueError(f"the trace holds no operation of {worker}")
    makespan_us = max(end for _, end in spans_us) - min(start for start, _ in spans_us)
    return StepSample(
        makespan_us / 1e6,
        busy_time(running_us) / 1e6,
        {name: sum(service_times(found)) / 1e6 for name, found in transfers_us.items()},
    )


def _is_waiting(label: str) -> bool:
    # Receiving operations only wait; what they wait for is counted as a transfer.
    return any(f" = {kind}(" in label for kind in ("_Recv", "_HostRecv"))
