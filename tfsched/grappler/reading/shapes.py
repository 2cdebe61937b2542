"""The shapes that a graph states, as far as they are certain: enough to know the sizes of variables and their gradients."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tfsched.graph_ops import PASSING_ON, READ_OP, REFERENCES, WHOLE_READS, is_update
from tfsched.grappler.reading.graph import GraphView
from tfsched.grappler.reading.op_types import op_def
from tfsched.grappler.reading.transfers import Transfer
from tfsched.grappler.reading.variables import shape_of, variable_behind

Shape = tuple[int, ...]

_UNARY = PASSING_ON | {"Cast", "Neg", "Abs", "Sign", "Square", "Sqrt", "Rsqrt", "Exp", "Log", "Tanh", "Sigmoid", "Relu"}
_UNARY |= {"ZerosLike", "OnesLike", "Reciprocal", "Round"}
_BINARY = {"Add", "AddV2", "Sub", "Mul", "MulNoNan", "RealDiv", "Div", "DivNoNan", "Maximum", "Minimum", "SquaredDifference"}
_PLACEHOLDERS = {"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"}

# Names of the inputs that dense updates want to have the variable's shape.
_GRADIENT = {"grad", "delta"}
_SUMMAND = re.compile(r"Assign(Add|Sub)(VariableOp)?$")

# How many ops a shape is followed through.
_DEPTH = 16


class Shapes:
    """Looks shapes up in one graph; answers are remembered."""

    def __init__(self, view: GraphView):
        self._view = view
        self._known: dict[tuple[int, int], Shape | None] = {}

    def of_transfer(self, transfer: Transfer) -> Shape | None:
        """The shape of the tensor that crosses, from what makes it or from what takes it; None if it is not certain."""
        shape = self.of(transfer.source, transfer.port)
        return self._wanted_by(transfer.consumers, _DEPTH) if shape is None else shape

    def taken_by(self, consumers: Sequence[tuple[int, int]]) -> Shape | None:
        """The shape that consumers, (node, input position), want a tensor to have; None if it is not certain."""
        return self._wanted_by(consumers, _DEPTH)

    def of(self, number: int, port: int = 0, depth: int = _DEPTH) -> Shape | None:
        """The shape of an output, all its sizes; None if it is not certain."""
        if number < 0 or depth == 0:
            return None
        key = (number, port)
        if key not in self._known:
            shape = self._stated(number, port)
            self._known[key] = self._computed(number, port, depth) if shape is None else shape
        return self._known[key]

    def _stated(self, number: int, port: int) -> Shape | None:
        node = self._view.nodes[number]
        if "_output_shapes" in node.attr and port < len(node.attr["_output_shapes"].list.shape):
            shape = full(node.attr["_output_shapes"].list.shape[port])
            if shape is not None:
                return shape
        if node.op in REFERENCES:
            return full(node.attr["shape"].shape)
        if node.op in _PLACEHOLDERS:
            return full(node.attr["shape"].shape) or None  # in old graphs no dimensions meant any
        if node.op in ("Const", "HostConst"):
            return full(node.attr["value"].tensor.tensor_shape)
        return None

    def _computed(self, number: int, port: int, depth: int) -> Shape | None:
        view = self._view
        op = view.nodes[number].op
        inputs = view.data_inputs[number]
        if op == READ_OP:
            return None  # a marker may stand in for the value
        if op in WHOLE_READS:
            variable = variable_behind(view, number)
            return None if variable is None else full(shape_of(view.nodes[variable]))
        if port != 0:
            return None
        if op in _UNARY:
            return self.of(*inputs[0], depth - 1)
        if op == "AddN":
            return next((shape for edge in inputs if (shape := self.of(*edge, depth - 1)) is not None), None)
        if op in _BINARY:
            return _broadcast([self.of(*edge, depth - 1) for edge in inputs])
        return None

    def _wanted_by(self, consumers: Sequence[tuple[int, int]], depth: int) -> Shape | None:
        """The shape that one of the consumers, (node, input position), insists on."""
        view = self._view
        for number, position in consumers if depth > 0 else ():
            op = view.nodes[number].op
            if self._takes_gradient(number, position):
                variable = variable_behind(view, view.data_inputs[number][0].source)
                shape = None if variable is None else full(shape_of(view.nodes[variable]))
            elif op in _UNARY or op == "AddN" or (op in _BINARY and self._is_scalar(number, 1 - position, depth)):
                shape = self._wanted_by(_readers(view, number), depth - 1)
            else:
                shape = None
            if shape is not None:
                return shape
        return None

    def _takes_gradient(self, number: int, position: int) -> bool:
        node = self._view.nodes[number]
        if _SUMMAND.match(node.op):
            return position == 1
        if not is_update(node.op) or "Sparse" in node.op or "Scatter" in node.op:
            return False
        arguments = op_def(node, self._view.graph.library).input_arg
        return position < len(arguments) and arguments[position].name in _GRADIENT

    def _is_scalar(self, number: int, position: int, depth: int) -> bool:
        return self.of(*self._view.data_inputs[number][position], depth - 1) == ()


def full(shape: Any) -> Shape | None:
    """A TensorShapeProto's sizes; None if any is missing."""
    if shape.unknown_rank or any(dim.size < 0 for dim in shape.dim):
        return None
    return tuple(dim.size for dim in shape.dim)


def _readers(view: GraphView, number: int) -> list[tuple[int, int]]:
    """Who takes output 0 of a node, as (node, input position)."""
    return [
        (consumer, position)
        for consumer in dict.fromkeys(view.consumers[number])
        for position, edge in enumerate(view.data_inputs[consumer])
        if edge == (number, 0)
    ]


def _broadcast(shapes: Sequence[Shape | None]) -> Shape | None:
    result: Shape = ()
    for shape in shapes:
        if shape is None:
            return None
        rank = max(len(result), len(shape))
        pairs = zip((1,) * (rank - len(result)) + result, (1,) * (rank - len(shape)) + shape, strict=True)
        sizes = tuple(b if a == 1 else a for a, b in pairs if 1 in (a, b) or a == b)
        if len(sizes) < rank:
            return None
        result = sizes
    return result
