"""The all-reduces of traced steps: when each gradient was there, when its variable was used, what a message cost."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tfsched.errors import TfschedError
from tfsched.grappler.collectives.orders import RECEIVER
from tfsched.ordering import AllReduce, Dag, exchange_dag

__all__ = ["LEAST_STARTUP_US", "RECEIVER", "Rate", "TracedExchange", "dag_of", "rate_of", "rate_of_rows"]

# A message costs a request and an answer besides its bytes (`python benchmarks/partition_cost.py`: 29 to 70 µs). Messages of
# one size do not show it, and if it were nothing, planners would cut as finely as can be.
LEAST_STARTUP_US = 50.0


@dataclasses.dataclass(frozen=True)
class TracedExchange:
    """One gradient that is all-reduced in each step.

    Attributes:
      name: in plans.
      size_bytes: of the tensor.
      maker: the op that makes it.
      use: the op in which a forward pass first uses the variable that it updates; "" if there is none.
      transfer: what the messages are called that carry it, perhaps with others: ``name`` of the steps' sends.
    """

    name: str
    size_bytes: int
    maker: str
    use: str
    transfer: str


class Rate(NamedTuple):
    """What sending costs: bits per second of the tensors' own bytes, and µs for each message besides."""

    bandwidth_bps: float
    startup_us: float


def dag_of(exchanges: Sequence[TracedExchange], nodes: Iterable[Any], steps: Sequence[Any], rate: Rate | None = None) -> Dag:
    """The step as orderings see it, with the medians of what the traced steps took.

    Args:
      exchanges: all gradients.
      nodes: (name, op, device, inputs) of the placed graph.
      steps: TracedSteps.
      rate: of the link; None means that of the all-reduces' messages.

    Raises:
      TfschedError: no step holds messages of the all-reduces, or none holds the ops that make the gradients.
    """
    inputs = {name: [text.lstrip("^").partition(":")[0] for text in texts] for name, _, _, texts in nodes}
    gradients = []
    for one in exchanges:
        ready = [at for step in steps if (at := _made_us(one.maker, step.ops, inputs)) is not None]
        used = [step.ops[one.use][0] - _begin_us(step) for step in steps if one.use in step.ops]
        if not ready:
            raise TfschedError(f"The traced steps do not hold the op {one.maker} that makes {one.name}; trace again.")
        needed = statistics.median(used) if used else None
        gradients.append(AllReduce(one.name, one.size_bytes, statistics.median(ready), needed))
    rate = rate or rate_of(exchanges, steps)
    return exchange_dag(gradients, rate.bandwidth_bps, rate.startup_us)


def rate_of(exchanges: Sequence[TracedExchange], steps: Sequence[Any]) -> Rate:
    """The rate, from what this worker sent while its link was busy.

    A message's time is what it took behind the one before it. A straight line through (bytes, time) of all messages
    gives what one costs besides its bytes, the model that MG-WFBP and PACE fit; it is at least LEAST_STARTUP_US, since
    messages of nearly one size show none. The median step counts. Between two workers a piece is one message, between more
    it is 2 (W - 1).

    Raises:
      TfschedError: no step holds messages of the all-reduces.
    """
    by_step = [_sends(exchanges, step) for step in steps]
    rate = rate_of_rows(by_step)
    if rate is None:
        raise TfschedError(
            "The traced steps were all-reduced by stock TensorFlow; call tfsched.enable() with the same options on all "
            "workers, and trace again."
        )
    # Bytes on the wire are more than the tensors' own.
    own = sum(one.size_bytes for one in exchanges)
    sent = [sum(row["bytes"] for row in rows) for rows in by_step if rows]
    peers = workers_of(exchanges, steps) - 1
    return Rate(rate.bandwidth_bps * own / statistics.median(sent), rate.startup_us * (1 if peers == 1 else 2 * peers))


def workers_of(exchanges: Sequence[TracedExchange], steps: Sequence[Any]) -> int:
    """How many workers all-reduce: this one and all to which it sent."""
    return 1 + max(len({row["to"] for row in _sends(exchanges, step)}) for step in steps)


def rate_of_rows(steps: Iterable[Sequence[Mapping[str, Any]]]) -> Rate | None:
    """The rate at which messages left, for each step its rows of ``tfsched.transfers()``; None without any.

    A message's time is what it took behind the one before it. A straight line through (bytes, time) gives what one costs
    besides its bytes, and LEAST_STARTUP_US the least of it; it is at most half of what messages take where the line does not
    show more. The median step counts.
    """
    rates, startups = [], []
    for rows in steps:
        if not rows:
            continue
        free_us, sizes, times_us = 0, [], []
        for row in sorted(rows, key=lambda row: (row["started_us"], row["released_us"])):
            sizes.append(float(row["bytes"]))
            times_us.append(float(max(0, row["released_us"] - max(free_us, row["started_us"]))))
            free_us = max(free_us, row["released_us"])
        startup_us = max(_intercept(sizes, times_us), min(LEAST_STARTUP_US, statistics.fmean(times_us) / 2))
        rates.append(8e6 * sum(sizes) / max(1.0, sum(times_us) - startup_us * len(rows)))
        startups.append(startup_us)
    return Rate(statistics.median(rates), statistics.median(startups)) if rates else None


def transfers_of(exchanges: Sequence[TracedExchange], step: Any) -> dict[str, tuple[int, int]]:
    """AllReduce -> (asked for, left), in µs: from the first to the last message that carries it."""
    spans: dict[str, tuple[int, int]] = {}
    for row in _sends(exchanges, step):
        first, last = spans.get(row["name"], (row["requested_us"], row["released_us"]))
        spans[row["name"]] = (min(first, row["requested_us"]), max(last, row["released_us"]))
    return {one.name: spans[one.transfer] for one in exchanges if one.transfer in spans}


def _sends(exchanges: Sequence[TracedExchange], step: Any) -> list[Mapping[str, Any]]:
    names = {one.transfer for one in exchanges}
    return [row for row in step.sends if row["name"] in names and row["released_us"] >= 0 and not row["dropped"]]


def _intercept(sizes: Sequence[float], times_us: Sequence[float]) -> float:
    """Of the straight line with the least squares; between 0 and the mean time."""
    mean = statistics.fmean(sizes)
    if len(sizes) < 3 or statistics.pstdev(sizes) < 0.1 * mean:
        return 0.0
    intercept_us = statistics.linear_regression(sizes, times_us).intercept
    return min(max(0.0, intercept_us), statistics.fmean(times_us))


def _begin_us(step: Any) -> int:
    return min((start for start, _ in step.ops.values()), default=step.start_us)


def _made_us(maker: str, ops: Mapping[str, tuple[int, int]], inputs: Mapping[str, list[str]]) -> float | None:
    """When an op was done, from the first op's start; of one that was not recorded when all that it needs was there."""
    begin_us = min((start for start, _ in ops.values()), default=0)
    stack, seen, ends = [maker], {maker}, []
    while stack:
        name = stack.pop()
        if name in ops:
            ends.append(sum(ops[name]) - begin_us)
            continue
        fresh = [one for one in inputs.get(name, ()) if one not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return float(max(ends)) if ends else None
