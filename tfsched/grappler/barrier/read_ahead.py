"""Sends updated variables to their readers from the background, so that the next step's pulls are there when it begins."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from typing import Any

from tensorflow.python.framework import dtypes

from tfsched.graph_ops import AHEAD_OP, READ_OP, SELECT_OP
from tfsched.grappler.barrier.updates import nesting
from tfsched.grappler.reading.graph import GraphView
from tfsched.grappler.reading.shapes import full
from tfsched.grappler.reading.transfers import READ_PREFIX
from tfsched.grappler.reading.variable_uses import Variable, VariableUses
from tfsched.grappler.reading.variables import dtype_of, shape_of

# A value of so few bytes is as quick as the marker that would stand for it, and sending it ahead would be one transfer more.
SMALL_BYTES = 8192
KEEP_OP = "TfschedKeepAhead"


@dataclasses.dataclass(frozen=True)
class Reader:
    """A read whose value crosses to one other task.

    Attributes:
      read: number of the ReadVariableOp.
      variable: what it reads.
      device: the device of its consumers; several on one task share its CPU.
      task: their task.
    """

    read: int
    variable: Variable
    device: str
    task: str

    def key(self, view: GraphView) -> bytes:
        """The read's name for both ends, the same in all graphs that have it."""
        return f"{view.nodes[self.read].name}@{self.task}".encode()


def find_readers(
    view: GraphView, uses: VariableUses, updates: list[int], visible: set[int], capable: Collection[str] | None
) -> list[Reader]:
    """The reads that can be served from the background: of a variable that is updated there, by one other task."""
    updated = {variable for number in updates for variable in uses.of[number]}
    nested = nesting(view)
    handles = {variable: number for number, variable in uses.handles.items()}
    readers = []
    for variable, consumers in uses.by.items():
        handle = view.nodes[handles[variable]]
        shape = full(shape_of(handle))
        if variable not in updated or not shape or 0 in shape:  # a marker must not be mistaken for a value
            continue
        if math.prod(shape) * dtypes.as_dtype(dtype_of(handle)).size <= SMALL_BYTES:
            continue
        for number in consumers:
            node = view.nodes[number]
            if node.op != "ReadVariableOp" or number in visible or nested[number]:
                continue
            tasks = {
                view.tasks[consumer]
                for consumer in view.consumers[number]
                if any(edge.source == number for edge in view.data_inputs[consumer])
            }
            if len(tasks) != 1 or variable.task in tasks:
                continue
            (task,) = tasks
            if task and (capable is None or task in capable):
                readers.append(Reader(number, variable, f"{task}/device:CPU:0", task))
    return readers


def replace_read(view: GraphView, reader: Reader, client: bytes, committed: str, prefix: str) -> None:
    """Lets the step take the value that was sent ahead, in place.

    before                          after

    PS          | worker            PS             | worker
    Read_i ─────┼──► MatMul_i       TfschedRead_i ─┼─► TfschedSelect_i ─► MatMul_i
                                       ▲
                                    committed (from home)

    ``committed`` is the node that says which background update is to be trusted. The old read stays, without consumers.
    """
    node = view.nodes[reader.read]
    dtype = node.attr["dtype"].type
    # A session shares kernels of one name, and another of its graphs may read as before: so the new op has another name.
    read = view.graph.node.add(name=READ_PREFIX + node.name, op=READ_OP, device=node.device)
    read.input.extend([node.input[0], committed, *node.input[1:]])  # the handle; what follows it are control inputs
    select = view.graph.node.add(name=f"{prefix}select/{node.name}", op=SELECT_OP, device=reader.device, input=[read.name])
    for one in (read, select):
        one.attr["dtype"].type = dtype
        one.attr["client"].s = client
        one.attr["key"].s = reader.key(view)
    select.attr["shape"].shape.CopyFrom(shape_of(view.nodes[view.data_inputs[reader.read][0].source]))
    for consumer in dict.fromkeys(view.consumers[reader.read]):
        for position, edge in enumerate(view.data_inputs[consumer]):
            if edge.source == reader.read:
                view.nodes[consumer].input[position] = select.name
        inputs = view.nodes[consumer].input
        for position, text in enumerate(inputs):
            if text == "^" + node.name:
                inputs[position] = "^" + read.name


def add_to_body(
    body: Any, view: GraphView, reader: Reader, names: tuple[str, str, str], client: bytes, prefix: str
) -> tuple[str, str]:
    """Adds the sending to the background function's nodes.

      Apply_i ┄► ReadAhead_i (PS) ─┼─► KeepAhead_i (worker)
                      ┆
                      └┄► Notify_i

    Args:
      body: the function's nodes.
      view: the step's.
      reader: whom to serve.
      names: of the variable's handle, the expectation and the update in the body.
      client: who trains.
      prefix: of the new nodes' names.

    Returns:
      The names of two nodes: the one that a Notify has to follow, and the one that must run.
    """
    handle, expected, update = names
    there = f"{reader.variable.task}/device:CPU:0"
    dtype = view.nodes[reader.read].attr["dtype"].type
    ahead = body.node.add(name=prefix + "read", op=AHEAD_OP, device=there, input=[handle, expected, "^" + update])
    keep = body.node.add(name=prefix + "keep", op=KEEP_OP, device=reader.device, input=[ahead.name, expected])
    for node in (ahead, keep):
        node.attr["dtype"].type = dtype
        node.attr["client"].s = client
        node.attr["key"].s = reader.key(view)
    return str(ahead.name), str(keep.name)
