"""Cuts ordered transfers into chunks: which, into how many, and the rewrite of the graph."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from tensorflow.core.framework import types_pb2

from tfsched._options import Options
from tfsched._rules import chunks_of
from tfsched.grappler.reading.graph import GraphView, split_input
from tfsched.grappler.reading.shapes import Shape, Shapes
from tfsched.grappler.reading.transfers import MERGE_OP, SPLIT_OP, Transfer
from tfsched.grappler.sending.proxies import add_sender, redirect, unused_name
from tfsched.grappler.sending.ranks import Cut, Ranked
from tfsched.ordering import Plan

# Types whose elements are whole bytes and lie one behind the other; of others (int4 and the like) nothing is assumed.
ELEMENT_BYTES = {
    types_pb2.DT_BOOL: 1,
    types_pb2.DT_INT8: 1,
    types_pb2.DT_UINT8: 1,
    types_pb2.DT_QINT8: 1,
    types_pb2.DT_QUINT8: 1,
    types_pb2.DT_FLOAT8_E5M2: 1,
    types_pb2.DT_FLOAT8_E4M3FN: 1,
    types_pb2.DT_INT16: 2,
    types_pb2.DT_UINT16: 2,
    types_pb2.DT_QINT16: 2,
    types_pb2.DT_QUINT16: 2,
    types_pb2.DT_HALF: 2,
    types_pb2.DT_BFLOAT16: 2,
    types_pb2.DT_INT32: 4,
    types_pb2.DT_UINT32: 4,
    types_pb2.DT_QINT32: 4,
    types_pb2.DT_FLOAT: 4,
    types_pb2.DT_INT64: 8,
    types_pb2.DT_UINT64: 8,
    types_pb2.DT_DOUBLE: 8,
    types_pb2.DT_COMPLEX64: 8,
    types_pb2.DT_COMPLEX128: 16,
}


class Cutter:
    """Decides how each transfer of one graph leaves.

    Attributes:
      whole: reason -> how many transfers leave whole although cutting was asked for, each counted once. Those that are small
        enough are not among them.
    """

    def __init__(
        self,
        view: GraphView,
        options: Options,
        plan: Plan | None = None,
        feeds: Iterable[str] = (),
        capable: Collection[str] | None = None,
    ):
        """
        Args:
          view: the graph.
          options: with ``partition_bytes``, for transfers of which the plan says nothing.
          plan: whose sizes win.
          feeds: names of the tensors that the step is given.
          capable: the tasks whose processes know the merge op; None means all.
        """
        self.whole: dict[str, int] = {}
        self._view, self._options, self._plan, self._capable = view, options, plan, capable
        self._feeds = {split_input(name) for name in feeds}
        self._shapes = Shapes(view)
        self._decided: dict[tuple[int, int, str], Cut | None] = {}

    def cut(self, transfer: Transfer) -> Cut | None:
        """How the transfer leaves; None for whole."""
        key = (transfer.source, transfer.port, transfer.device)
        if key not in self._decided:
            self._decided[key] = self._decide(transfer)
        return self._decided[key]

    def priority(self, transfer: Transfer) -> float | None:
        """The transfer's priority in the plan; None if it has none."""
        return None if self._plan is None else self._plan.priority_of(transfer.plan_name(self._view))

    def _decide(self, transfer: Transfer) -> Cut | None:
        partition_bytes = self._options.partition_bytes
        pieces: tuple[tuple[int, float], ...] = ()
        if self._plan is not None:
            pieces = self._plan.pieces_of(transfer.plan_name(self._view))
            planned = self._plan.partition_bytes_of(transfer.plan_name(self._view))
            partition_bytes = partition_bytes if planned is None else planned
        if partition_bytes == 0 and not pieces:
            return None
        shape = self._shapes.of_transfer(transfer)
        element_bytes = ELEMENT_BYTES.get(transfer.dtype)
        chunks = 0
        if shape is not None and element_bytes is not None:
            if pieces and sum(size for size, _ in pieces) == math.prod(shape) * element_bytes:
                if not self._reason(transfer, shape):
                    return Cut(len(pieces), shape, tuple(size for size, _ in pieces), tuple(one for _, one in pieces))
            elif partition_bytes == 0:  # planned for another size: whole
                return None
            chunks = chunks_of(math.prod(shape) * element_bytes, partition_bytes)
            if chunks == 1:
                return None
        reason = self._reason(transfer, shape)
        if shape is None or reason:
            self.whole[reason] = self.whole.get(reason, 0) + 1
            return None
        return Cut(chunks, shape)

    def _reason(self, transfer: Transfer, shape: Shape | None) -> str:
        """Why the transfer cannot be cut; "" if it can."""
        if transfer.dtype not in ELEMENT_BYTES:
            return "of a type that is not cut"
        if (self._view.nodes[transfer.source].name, transfer.port) in self._feeds:
            return "fed"
        if self._capable is not None and transfer.receiver not in self._capable:
            return "to a task without tfsched"
        return "of unknown size" if shape is None else ""


def insert_chunks(view: GraphView, ranked: Sequence[Ranked], options: Options) -> None:
    """Puts a split and a merge into the place of each transfer that is to be cut, in place. ``view`` does not see them.

      before                         after

      PS          | worker           PS                             | worker
      Read_i ─────┼──► MatMul_i      Read_i ─► TfschedSplit_i ─ 0 ──┼──► TfschedMerge_i ─► MatMul_i
         └──► local consumer            │           ├────────── 1 ──┼──────►┤
                                        │           └────────── 2 ──┼──────►┘
                                        └──► local consumer

    The split stands on the sender's device and tags its outputs with ranks: those of a plan's pieces, or such that follow
    one another. So each chunk is a transfer of its own to the scheduler. The merge stands where the consumers are, or on the
    CPU beside them if they are on another kind of device: TensorFlow then copies the whole tensor there.
    """
    for one in ranked:
        if one.cut is None:
            continue
        split = add_sender(view, one, options, SPLIT_OP, "tfsched/split/")
        if one.ranks:
            split.attr["ranks"].list.i.extend(one.ranks)
        merge = view.graph.node.add()
        merge.name = unused_name(view, "tfsched/merge/", one.transfer)
        merge.op = MERGE_OP
        kind = one.transfer.device.rpartition("/")[2].upper()
        merge.device = one.transfer.device if "CPU" in kind else one.transfer.receiver + "/device:CPU:0"
        merge.attr["T"].type = one.transfer.dtype
        merge.input.extend(split.name if chunk == 0 else f"{split.name}:{chunk}" for chunk in range(one.cut.chunks))
        for node in (split, merge):
            node.attr["N"].i = one.cut.chunks
            if one.cut.sizes:
                node.attr["sizes"].list.i.extend(one.cut.sizes)
            for size in one.cut.shape:
                node.attr["shape"].shape.dim.add().size = size
        redirect(view, one, merge.name)
