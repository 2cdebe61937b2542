"""Makes a step trace of what tasks have recorded of a function: its graph, when its ops ran, what was sent."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tfsched.grappler.collectives import records
from tfsched.grappler.reading.graph import GraphView, split_input
from tfsched.grappler.reading.transfers import READ_PREFIX, find_transfers
from tfsched.grappler.sending.grouping import members_of
from tfsched.grappler.sending.proxies import strip_proxies
from tfsched.tracing.directions import in_background
from tfsched.tracing.exchanges import RECEIVER, TracedExchange, transfers_of
from tfsched.tracing.sends import add_sends
from tfsched.tracing.step_trace import StepTrace, TracedStep, TraceError

# What TensorFlow calls a transfer without a rank: the edge's number and the node that it comes from.
_EDGE = re.compile(r"^edge_\d+_(?P<node>.+)$")


class Assembler:
    """Collects what belongs to one trace.

    Args:
      graphs: what the pass has kept in all tasks, as it ran, proxies included.

    Raises:
      TraceError: no graph spans several tasks or all-reduces anything.
    """

    def __init__(self, graphs: Iterable[Any]):
        best: tuple[int, Any, list[Any], dict[str, list[tuple[str, int]]]] | None = None
        for rewritten in graphs:
            members = members_of(rewritten)
            graph = strip_proxies(rewritten)
            view = GraphView(graph)
            transfers = find_transfers(view, [True] * len(view.nodes), classify=False)
            # A callable may call several functions. The one that communicates most is the step.
            count = len(transfers) + sum(1 for _ in records.exchanged(graph))
            if count and (best is None or count > best[0]):
                best = (count, view, transfers, members)
        if best is None:
            raise TraceError(
                "No traced function spans several tasks that run tfsched; trace one that reads variables of parameter "
                "servers, on a cluster whose tasks import tfsched, or one that all-reduces gradients after tfsched.enable()."
            )
        _, self._view, transfers, self._members = best
        self._tasks = {*self._view.tasks}
        self._links = {one.name(self._view): f"{one.sender}>{one.receiver}" for one in transfers}
        self._sizes: dict[str, int] = {}
        self._steps: list[TracedStep] = []
        self._exchanges = [TracedExchange(*one) for one in records.exchanged(self._view.graph)]
        (task, *_) = sorted(self._tasks)
        for one in self._exchanges:
            self._links[one.name], self._sizes[one.name] = f"{task}>{RECEIVER}", one.size_bytes
        # (node, receiver) -> the transfer, for rows that do not say which output.
        self._by_node: dict[tuple[str, str], str] = {}
        for name, link in self._links.items():
            node = split_input(name.rpartition("@")[0])[0]
            self._by_node.setdefault((node, link.partition(">")[2]), name)

    def add_step(self, start_us: int, end_us: int, ops: Iterable[tuple[str, int, int]]) -> None:
        """Takes in one step; ``ops`` are (node name, start_us, duration_us), in any order."""
        step = TracedStep(start_us, end_us, {}, {})
        for name, begin_us, duration_us in ops:
            if name in self._view.index:
                # In a loop a node runs several times: from its first start, as long as all took together.
                first_us, sum_us = step.ops.get(name, (begin_us, 0))
                step.ops[name] = (min(first_us, begin_us), sum_us + duration_us)
        self._steps.append(step)

    def add_sends(self, rows: Iterable[dict[str, Any]]) -> None:
        """Takes in what a task's scheduler sent during the steps."""
        rows = list(rows)
        exchanged = {one.transfer for one in self._exchanges}
        # Others, such as this process, are sent results, and our own questions' answers.
        mine = [row for row in rows if row["from"] in self._tasks and row["to"] in self._tasks]
        add_sends(self._steps, [row for row in mine if row["name"] not in exchanged])
        add_sends(self._steps, [row for row in rows if row["name"] in exchanged], behind_the_end=True)

    def finish(self) -> StepTrace:
        """The trace."""
        for step in self._steps:
            self._sign_step_ids(step)
            self._add_transfers(step)
            step.transfers.update(transfers_of(self._exchanges, step))
        nodes = [(node.name, node.op, node.device, list(node.input)) for node in self._view.nodes]
        return StepTrace(nodes, self._sizes, self._links, self._steps, tf.__version__, self._exchanges)

    def _sign_step_ids(self, step: TracedStep) -> None:
        """Makes step ids positive, and negative those of background updates, as they are in sessions.

        TensorFlow gives calls of functions negative numbers as well. What a background update sends are gradients, and the
        step's own graph knows no such transfer.
        """
        exchanged = {one.transfer for one in self._exchanges}
        unknown = [row for row in step.sends if row["name"] not in exchanged and not self._transfers(row)]
        foreign = {row["step_id"] for row in unknown if row["bytes"] > 0}
        for row in step.sends:
            row["step_id"] = -abs(row["step_id"]) if row["step_id"] in foreign else abs(row["step_id"])

    def _add_transfers(self, step: TracedStep) -> None:
        """Transfers as their receivers saw them: asked for when the question came, there when the last byte had left."""
        carried: dict[str, int] = {}
        for row in step.sends:
            names = self._transfers(row)
            if not names or in_background(row) or row["dropped"]:
                continue
            left_us = max(row["released_us"], row["started_us"])
            for name, member_bytes in names.items():
                # Of a transfer in chunks, from the first request to the last arrival.
                asked_us, there_us = step.transfers.get(name, (row["requested_us"], left_us))
                step.transfers[name] = (min(asked_us, row["requested_us"]), max(there_us, left_us))
                if member_bytes is None:
                    carried[name] = carried.get(name, 0) + row["bytes"]
                else:
                    self._sizes[name] = member_bytes
        for name, size_bytes in carried.items():
            self._sizes[name] = max(self._sizes.get(name, 0), size_bytes)

    def _transfers(self, row: dict[str, Any]) -> dict[str, int | None]:
        """The transfers that a row is of, several of a group, with their bytes; None where these are the row's."""
        tensor = row["name"].partition("#")[0]
        name = f"{tensor}@{row['to']}"
        if name in self._links:
            return {name: None}
        if tensor in self._members:
            return {f"{member}@{row['to']}": size_bytes for member, size_bytes in self._members[tensor]}
        edge = _EDGE.match(row["name"])
        found = self._by_node.get((edge["node"].removeprefix(READ_PREFIX), row["to"])) if edge else None
        return {} if found is None else {found: None}
