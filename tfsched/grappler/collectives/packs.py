"""Finds the packs of gradients that stock TensorFlow all-reduces as one tensor."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from typing import Any

from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import tensor_util

from tfsched.grappler.collectives.keys import OLD_REDUCE_OP, REDUCE_OPS, already_scheduled, tells_no_calls_apart
from tfsched.grappler.reading.graph import GraphView, split_input
from tfsched.grappler.reading.shapes import Shapes

ALL_REDUCE_OP = "TfschedAllReduce"
# In front of what TensorFlow's own optimizer has packed, into memory that what follows shares.
_SHARED = "_ScopedAllocatorConcat"

# Type -> bytes of an element. cc/collective knows these, and no others.
TYPES = {
    types_pb2.DT_HALF: 2,
    types_pb2.DT_BFLOAT16: 2,
    types_pb2.DT_FLOAT: 4,
    types_pb2.DT_DOUBLE: 8,
    types_pb2.DT_INT32: 4,
    types_pb2.DT_INT64: 8,
}
_MERGE = {b"Add", b"Mul", b"Max", b"Min"}
_FINAL = {b"Id", b"Div"}
# A lone tensor of fewer elements is a loss, a metric or a counter: there is nothing to order.
_FEW = 64


@dataclasses.dataclass
class Element:
    """One tensor of a pack.

    Attributes:
      tensor: the node's input by which the pack has it, flattened.
      elements: how many it has.
      consumers: who takes the reduced one, as (node, input position).
    """

    tensor: str
    elements: int
    consumers: list[tuple[int, int]]


@dataclasses.dataclass
class Pack:
    """One stock all-reduce.

    Attributes:
      reduce: number of its node.
      join: number of the ConcatV2 in front of it, None where it reduces a lone tensor.
      part: number of the SplitV behind it, None likewise.
      elements: its tensors in their order.
      members: how many workers reduce it, None where the graph does not state it.
    """

    reduce: int
    join: int | None
    part: int | None
    elements: list[Element]
    members: int | None


def find_packs(
    view: GraphView, needed: list[bool], visible: Collection[int], local: Collection[str]
) -> tuple[list[Pack], dict[str, int]]:
    """The all-reduces that can be exchanged tensor by tensor.

    Args:
      view: a placed graph.
      needed: per node whether the step runs it.
      visible: numbers of the nodes whose outputs leave the step, or are given to it.
      local: tasks of this process's servers; others' graphs are rewritten in their own processes.

    Returns:
      The packs in the graph's order, and reason -> how many all-reduces stay as they are for it.
    """
    finder = _Finder(view, visible)
    packs: list[Pack] = []
    kept: dict[str, int] = {}
    for number, node in enumerate(view.nodes):
        if node.op not in REDUCE_OPS or not needed[number] or number in finder.agreed:
            continue
        found = "on a task without tfsched" if view.tasks[number] not in local else finder.pack(number)
        if isinstance(found, Pack):
            packs.append(found)
        else:
            kept[found] = kept.get(found, 0) + 1
    return packs, kept


class _Finder:
    def __init__(self, view: GraphView, visible: Collection[int]):
        self._view, self._visible = view, visible
        self._shapes = Shapes(view)
        self.agreed = already_scheduled(view)

    def pack(self, number: int) -> Pack | str:
        """The pack around an all-reduce, or why it stays as it is."""
        view = self._view
        node = view.nodes[number]
        reason = self._unsuitable(node)
        if reason:
            return reason
        if tells_no_calls_apart(view, number):
            return "with a constant key in a function"
        source = view.data_inputs[number][0]
        if source.source >= 0 and view.nodes[source.source].op == _SHARED:
            return "packed by TensorFlow's scoped allocator"
        readers = _readers(view, number)
        joined = source.source >= 0 and view.nodes[source.source].op == "ConcatV2"
        if joined and view.consumers[source.source] == [number]:
            if len(readers) == 1 and readers[0][1] == 0 and view.nodes[readers[0][0]].op == "SplitV":
                return self._joined(number, source.source, readers[0][0])
            return "whose result is not split"
        return self._lone(number)

    def _unsuitable(self, node: Any) -> str:
        if node.attr["T"].type not in TYPES:
            return "of another type"
        if node.attr["merge_op"].s not in _MERGE or node.attr["final_op"].s not in _FINAL:
            return "with another operator"
        if "CPU" not in node.device.upper():
            return "on an accelerator"
        if node.attr["timeout_seconds"].f > 0:
            return "with a time limit"
        members = self._members(node)
        return "of one worker" if members is not None and members < 2 else ""

    def _members(self, node: Any) -> int | None:
        """How many workers reduce; None where the graph does not state it."""
        if node.op == OLD_REDUCE_OP:
            return int(node.attr["group_size"].i)
        size = self._constant(split_input(node.input[1])[0])
        return None if size is None else int(size)

    def _joined(self, number: int, join: int, part: int) -> Pack | str:
        view = self._view
        tensors = [text for text in view.nodes[join].input if not text.startswith("^")][:-1]
        sizes = self._constant(split_input(view.nodes[part].input[1])[0])
        if sizes is None or len(sizes) != len(tensors) or min(sizes) < 0:
            return "of unknown sizes"
        if {number, join, part} & set(self._visible):
            return "whose pack is used as a whole"
        consumers: list[list[tuple[int, int]]] = [[] for _ in tensors]
        for consumer in dict.fromkeys(view.consumers[part]):
            for position, edge in enumerate(view.data_inputs[consumer]):
                if edge.source == part:
                    consumers[edge.port].append((consumer, position))
        elements = [Element(*one) for one in zip(tensors, map(int, sizes), consumers, strict=True)]
        return Pack(number, join, part, elements, self._members(view.nodes[number]))

    def _lone(self, number: int) -> Pack | str:
        view = self._view
        source = view.data_inputs[number][0]
        elements = self._elements(source.source, source.port)
        if elements is None:
            elements = self._taken(number)
        if elements is None:
            return "of unknown sizes"
        if elements < _FEW:
            return "of few elements"
        if number in self._visible:
            return "whose pack is used as a whole"
        node = view.nodes[number]
        return Pack(number, None, None, [Element(node.input[0], elements, _readers(view, number))], self._members(node))

    def _elements(self, number: int, port: int) -> int | None:
        """How many elements an output has, as far as it is certain."""
        if number < 0:
            return None
        if self._view.nodes[number].op == "Reshape":
            edge = self._view.data_inputs[number][0]
            known = self._elements(edge.source, edge.port)
            return self._reshaped(number) if known is None else known
        shape = self._shapes.of(number, port)
        return None if shape is None else math.prod(shape)

    def _taken(self, number: int) -> int | None:
        """How many elements the consumers of an all-reduce want it to have: it is reshaped to what was flattened."""
        readers = _readers(self._view, number)
        counts = [self._reshaped(consumer) for consumer, position in readers if position == 0]
        shape = self._shapes.taken_by(readers)
        if shape is not None:
            counts.append(math.prod(shape))
        return next((count for count in counts if count is not None), None)

    def _reshaped(self, number: int) -> int | None:
        node = self._view.nodes[number]
        if node.op != "Reshape":
            return None
        shape = self._constant(split_input(node.input[1])[0])
        return None if shape is None or (len(shape) and min(shape) < 0) else math.prod(int(size) for size in shape)

    def _constant(self, name: str) -> Any:
        """The value of a constant of integers, as an array; None of anything else."""
        number = self._view.index.get(name)
        if number is None or self._view.nodes[number].op not in ("Const", "HostConst"):
            return None
        return tensor_util.MakeNdarray(self._view.nodes[number].attr["value"].tensor)


def _readers(view: GraphView, number: int) -> list[tuple[int, int]]:
    return [
        (consumer, position)
        for consumer in dict.fromkeys(view.consumers[number])
        for position, edge in enumerate(view.data_inputs[consumer])
        if edge.source == number
    ]
