"""Records step traces from a running session."""

from __future__ import annotations

import re
import time
from typing import Any

import tensorflow as tf

from tfsched.errors import TfschedError
from tfsched.grappler.reading.graph import split_input, task_of
from tfsched.ops.control import transfers as read_transfers
from tfsched.tracing import partitions
from tfsched.tracing.sends import add_sends
from tfsched.tracing.step_trace import StepTrace, TracedStep

# "[1.0MB] [2.3Gb/s] edge_21_conv1/ReadVariableOp from /job:ps/... to /job:worker/..."; the rate is left out for quick ones.
_TRANSFER_LABEL = re.compile(r"^(?:\[[^\]]*\] ?)*(?P<tensor>\S+) from (?P<sender>\S+) to (?P<receiver>\S+)")
_EVENT = "RecvTensor"


def trace_steps(session: Any, fetches: Any, steps: int = 5, feed_dict: Any = None) -> StepTrace:
    """Runs some steps with full tracing and keeps what ran when.

    Tracing slows a step down; run a few steps without it first, so that nothing is measured that happens only once.

    Args:
      session: a tf.compat.v1.Session of a cluster.
      fetches: as for ``session.run``.
      steps: how many, at least 1.
      feed_dict: as for ``session.run``.

    Returns:
      A StepTrace.

    Raises:
      TfschedError: ``steps`` is less than 1.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise TfschedError(f"trace_steps was asked for {steps!r} steps; give 1 or more.")
    recorder = Recorder()
    for _ in range(steps):
        recorder.run(session.run, fetches, feed_dict)
    return recorder.finish(session)


class Recorder:
    """Collects the RunMetadata of steps with the same fetches."""

    def __init__(self) -> None:
        self._steps: list[TracedStep] = []
        self._graph: Any = None
        self._names: dict[partitions.Key, list[str]] = {}
        self._sizes: dict[str, int] = {}

    @property
    def count(self) -> int:
        """How many steps have been recorded."""
        return len(self._steps)

    def run(self, run: Any, fetches: Any, feed_dict: Any = None) -> Any:
        """Calls ``run`` (a session's) with tracing on and returns its result."""
        options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
        metadata = tf.compat.v1.RunMetadata()
        start_us = time.time_ns() // 1000
        result = run(fetches, feed_dict, options=options, run_metadata=metadata)
        self.add(metadata, start_us, time.time_ns() // 1000)
        return result

    def add(self, metadata: Any, start_us: int, end_us: int) -> None:
        """Takes in one step's metadata."""
        if self._graph is None:
            self._graph, self._names = partitions.join(metadata.partition_graphs)
        step = TracedStep(start_us, end_us, {}, {})
        for device_stats in metadata.step_stats.dev_stats:
            for stats in device_stats.node_stats:
                begin = stats.all_start_micros + stats.op_start_rel_micros
                duration = max(stats.op_end_rel_micros - stats.op_start_rel_micros, 0)
                if stats.node_name == _EVENT:
                    self._add_transfer(step, stats.timeline_label, begin, duration)
                else:
                    step.ops[stats.node_name] = (begin, duration)
                    self._note_sizes(stats)
        self._steps.append(step)

    def _add_transfer(self, step: TracedStep, label: str, begin: int, duration: int) -> None:
        match = _TRANSFER_LABEL.match(label)
        if match is None:
            return
        for key, names in self._names.items():
            if key.tensor_name == match["tensor"] and match["receiver"].startswith(task_of(key.recv_device)):
                for name in names:
                    # Of a transfer in chunks, from the first request to the last arrival.
                    first, last = step.transfers.get(name, (begin, begin + duration))
                    step.transfers[name] = (min(first, begin), max(last, begin + duration))
                return

    def _note_sizes(self, stats: Any) -> None:
        for output in stats.output:
            description = output.tensor_description
            element = tf.dtypes.as_dtype(description.dtype).size if description.dtype else 0
            size = element or 0
            for dim in description.shape.dim:
                size *= dim.size
            self._sizes[f"{stats.node_name}:{output.slot}"] = max(size, 0)

    def finish(self, session: Any = None) -> StepTrace:
        """The trace; with ``session``, including what the cluster's schedulers saw of the steps."""
        if session is not None:
            self._add_sends(session)
        nodes = [(node.name, node.op, node.device, list(node.input)) for node in (self._graph.node if self._graph else ())]
        links = {
            name: f"{task_of(key.send_device)}>{task_of(key.recv_device)}"
            for key, names in self._names.items()
            for name in names
        }
        sizes = {}
        for name in links:
            source, port = split_input(name.partition("@")[0])
            if f"{source}:{port}" in self._sizes:
                sizes[name] = self._sizes[f"{source}:{port}"]
        return StepTrace(nodes, sizes, links, self._steps, tf.__version__)

    def _add_sends(self, session: Any) -> None:
        # Receivers as well: what a background update pushes is in no partition of the step's own graph.
        tasks = {task_of(device) for key in self._names for device in (key.send_device, key.recv_device)}
        for task in sorted(tasks):
            try:
                rows = read_transfers(session, task)
            except TfschedError:
                continue  # a stock task: it has no scheduler to ask
            add_sends(self._steps, [row for row in rows if row["from"] == task])
