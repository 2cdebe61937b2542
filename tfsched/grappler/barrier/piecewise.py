"""Updates variables chunk by chunk: the background function's part that need not wait for whole gradients."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

from tensorflow.core.framework import node_def_pb2, types_pb2

from tfsched._rules import BLOCK_BYTES
from tfsched.graph_ops import AHEAD_OP
from tfsched.grappler.barrier.failures import UPDATE_OP
from tfsched.grappler.reading.graph import digest, split_input
from tfsched.grappler.reading.transfers import MERGE_OP, SPLIT_OP
from tfsched.grappler.sending.partition import ELEMENT_BYTES

PIECE_OP, FROM_PIECES_OP = "TfschedUpdatePiece", "TfschedUpdateFromPieces"

# Updates whose every element depends on the same element of the gradient and of the slots alone.
ELEMENTWISE_UPDATES = frozenset(
    "ResourceApply" + kind
    for kind in (
        *("GradientDescent", "Momentum", "KerasMomentum", "Adagrad", "AdagradV2", "Adadelta", "Adam", "AdaMax"),
        *("AdamWithAmsgrad", "RMSProp", "CenteredRMSProp", "Ftrl", "FtrlV2", "AddSign", "PowerSign"),
        *("ProximalGradientDescent", "ProximalAdagrad"),
    )
) | {"AssignAddVariableOp", "AssignSubVariableOp"}

# What may stand between the gradients of several workers and the update; scalars may be among the inputs.
_ELEMENTWISE = frozenset({"AddN", "Add", "AddV2", "Sub", "Mul", "Div", "RealDiv", "Neg", "Identity"})

# Of what is updated so.
_TYPES = frozenset({types_pb2.DT_HALF, types_pb2.DT_BFLOAT16, types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE})


def update_by_pieces(body: Any, prefix: str) -> int:
    """Lets each chunk of a gradient update its part of the variable and go on to the next reader, in place.

      before                                                           after

      chunk_j ─┼─► Merge ─► Update ┄► ReadAhead ─► Split ─ d_j ─┼─►    chunk_j ─┼─► Piece_j ─ d_j ─┼─►
                              ├─► error                                              all Pieces ┄► FromPieces ─► error
                              └┄► Notify                                                             └┄► Notify

    A tensor that was pushed in part is pulled in part, too: with whole updates, preempting a push (ByteScheduler, section
    4.1) leaves many gradients half pushed and nothing to pull. The new values become the variable's when all are there.

    What only combines the gradients of several workers element by element is done chunk by chunk as well. Bit-identical:
    the same kernels run on parts that begin where the kernels' packets do.

    Args:
      body: the background function's nodes, a placed GraphDef whose updates are ``TfschedUpdate``.
      prefix: of the new nodes' names.

    Returns:
      How many updates are made by chunks now.
    """
    rewriter = _Rewriter(body, prefix)
    count = sum(map(rewriter.rewrite, [node for node in body.node if node.op == UPDATE_OP]))
    rewriter.finish()
    return count


@dataclasses.dataclass
class _Reader:
    """What sends an updated variable ahead to one reader."""

    ahead: Any  # nodes
    split: Any


class _Rewriter:
    def __init__(self, body: Any, prefix: str):
        self.body, self.prefix = body, prefix
        self.nodes = {node.name: node for node in body.node}
        self.consumers: dict[str, list[tuple[Any, int]]] = {}  # name -> data consumers, with the position
        self.followers: dict[str, list[Any]] = {}  # name -> what has a control edge from it
        for node in body.node:
            for position, text in enumerate(node.input):
                name, port = split_input(text)
                if port < 0:
                    self.followers.setdefault(name, []).append(node)
                else:
                    self.consumers.setdefault(name, []).append((node, position))
        self.gone: set[str] = set()
        self.renamed: dict[str, str] = {}

    def rewrite(self, update: Any) -> bool:
        original = node_def_pb2.NodeDef.FromString(update.attr["node"].s)
        types = list(update.attr["Targs"].list.type)
        if original.op not in ELEMENTWISE_UPDATES:
            return False
        tensors = list(update.input[: len(types)])
        merges: dict[str, Any] = {}
        chunked = [number for number, text in enumerate(tensors) if self._is_chunked(text, merges)]
        if len(chunked) != 1 or types[chunked[0]] not in _TYPES or types[0] != types_pb2.DT_RESOURCE:
            return False
        gradient = chunked[0]
        size = _size(next(iter(merges.values())))
        if any(_size(merge) != size for merge in merges.values()) or size.pieces < 2:
            return False
        # TensorFlow's kernels go through a tensor in packets of up to BLOCK_BYTES and treat the rest one by one, which may
        # round differently. Where the tensor ends with a block, each element is in a packet whole or cut.
        if math.prod(size.shape) * ELEMENT_BYTES[types[gradient]] % BLOCK_BYTES:
            return False
        readers = self._readers(update, tensors[0], size, types[gradient])
        if not readers:
            return False
        self._replace(update, types, gradient, readers, next(iter(merges.values())))
        return True

    def _is_chunked(self, text: str, merges: dict[str, Any]) -> bool:
        """Whether the tensor can be made chunk by chunk; collects the merges that it is made from."""
        name, port = split_input(text)
        node = self.nodes[name]
        if port or len(self.consumers[name]) != 1 or name in self.followers:
            return False
        if node.op == MERGE_OP:
            merges[name] = node
            return True
        if node.op not in _ELEMENTWISE:
            return False
        inputs = [one for one in node.input if not one.startswith("^")]
        found = [self._is_chunked(one, merges) for one in inputs]
        return any(found) and all(yes or self._is_scalar(one) for yes, one in zip(found, inputs, strict=True))

    def _is_scalar(self, text: str) -> bool:
        node = self.nodes[split_input(text)[0]]
        return node.op == "Const" and not node.attr["value"].tensor.tensor_shape.dim

    def _readers(self, update: Any, handle: str, size: _Size, dtype: int) -> list[_Reader]:
        """Those to whom the update's result is sent ahead in the same chunks; none if any has it in another way."""
        readers = []
        for ahead in self.followers.get(update.name, []):
            if ahead.op != AHEAD_OP:
                continue
            consumers = [node for node, _ in self.consumers.get(ahead.name, [])]
            if ahead.input[0] != handle or len(consumers) != 1 or ahead.attr["dtype"].type != dtype:
                return []
            (split,) = consumers
            if split.op != SPLIT_OP or _size(split) != size or split.name in self.followers:
                return []
            readers.append(_Reader(ahead, split))
        return readers

    def _replace(self, update: Any, types: list[int], gradient: int, readers: list[_Reader], merge: Any) -> None:
        tensors, token = list(update.input[: len(types)]), readers[0].ahead.input[1]
        controls = [text for text in update.input if text.startswith("^")]
        after = [text for text in update.input[len(types) :] if not text.startswith("^")]
        pieces = merge.attr["N"].i
        what = (_size(merge), [r.split.name for r in readers])
        name = f"{self.prefix}update/{update.name}/{digest(repr(what).encode())}"
        made = []
        for piece in range(pieces):
            node = self.body.node.add(op=PIECE_OP, device=update.device, name=f"{name}/{piece}")
            node.input.extend([*tensors[:gradient], self._chunk(tensors[gradient], piece, name), *tensors[gradient + 1 :]])
            node.input.extend([token, *controls])
            self._describe(node, update, types, gradient, readers, merge, name)
            node.attr["T"].type = types[gradient]
            node.attr["piece"].i = piece
            if "sizes" in merge.attr:
                node.attr["sizes"].CopyFrom(merge.attr["sizes"])
            node.attr["R"].i = len(readers)
            first = readers[0].split
            node.attr["policy"].CopyFrom(first.attr["policy"])
            node.attr["credit_bytes"].CopyFrom(first.attr["credit_bytes"])
            for reader in readers:
                node.attr["transfers"].list.s.append(reader.split.attr["transfer"].s)
                node.attr["receivers"].list.s.append(reader.split.attr["receiver"].s)
                ranks = reader.split.attr["ranks"].list.i if "ranks" in reader.split.attr else ()
                node.attr["ranks"].list.i.append(ranks[piece] if ranks else reader.split.attr["rank"].i + piece)
                node.attr["counts"].list.i.append(reader.split.attr["count"].i)
            made.append(node)
        whole = self.body.node.add(op=FROM_PIECES_OP, device=update.device, name=name)
        whole.input.extend([*tensors[:gradient], *tensors[gradient + 1 :], token, *after, *controls])
        whole.input.extend("^" + node.name for node in made)
        self._describe(whole, update, types, gradient, readers, merge, name)
        del whole.attr["Targs"].list.type[gradient]
        whole.attr["N"].i = len(after)
        whole.attr["client"].CopyFrom(readers[0].ahead.attr["client"])
        for number, reader in enumerate(readers):
            for consumer, position in self.consumers[reader.split.name]:
                port = split_input(consumer.input[position])[1]
                consumer.input[position] = made[port].name if number == 0 else f"{made[port].name}:{number}"
            self.gone |= {reader.ahead.name, reader.split.name}
            self.renamed[reader.ahead.name] = name
        self.renamed[update.name] = name
        self.gone.add(update.name)

    @staticmethod
    def _describe(
        node: Any, update: Any, types: list[int], gradient: int, readers: list[_Reader], merge: Any, name: str
    ) -> None:
        node.attr["Targs"].list.type.extend(types)
        node.attr["node"].CopyFrom(update.attr["node"])
        node.attr["gradient"].i = gradient
        node.attr["shape"].CopyFrom(merge.attr["shape"])
        node.attr["pieces"].i = merge.attr["N"].i
        node.attr["update"].s = name.encode()
        node.attr["keys"].list.s.extend(reader.ahead.attr["key"].s for reader in readers)

    def _chunk(self, text: str, piece: int, name: str) -> str:
        """The tensor's chunk; what computes it is copied for it."""
        node = self.nodes[split_input(text)[0]]
        if node.op == "Const":
            return text
        self.gone.add(node.name)
        if node.op == MERGE_OP:
            return str(node.input[piece])
        copy = self.body.node.add()
        copy.CopyFrom(node)
        copy.name = f"{name}/{piece}/{node.name}"
        copy.attr.pop("_output_shapes", None)
        for position, one in enumerate(node.input):
            if not one.startswith("^"):
                copy.input[position] = self._chunk(one, piece, name)
        return str(copy.name)

    def finish(self) -> None:
        """Takes out what has been replaced, and names what has taken its place."""
        if not self.gone:
            return
        kept = type(self.body)()
        kept.node.extend(node for node in self.body.node if node.name not in self.gone)
        for node in kept.node:
            for position, text in enumerate(node.input):
                name, port = split_input(text)
                if name in self.renamed:
                    node.input[position] = ("^" if port < 0 else "") + self.renamed[name]
        del self.body.node[:]
        self.body.node.extend(kept.node)


class _Size(NamedTuple):
    """How a split or merge cuts: the tensor's shape, the number of chunks, and their bytes if they are not even."""

    shape: tuple[int, ...]
    pieces: int
    sizes: tuple[int, ...]


def _size(node: Any) -> _Size:
    shape = tuple(dim.size for dim in node.attr["shape"].shape.dim)
    sizes = tuple(node.attr["sizes"].list.i) if "sizes" in node.attr else ()
    return _Size(shape, node.attr["N"].i, sizes)
