"""Puts scheduled all-reduces beside stock's, and the agreement that chooses between them in front of both."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from tensorflow.core.framework import types_pb2

from tfsched._options import AUTO, AUTO_BYTES, Options
from tfsched._rules import WHOLE_BYTES
from tfsched.graph_ops import EXCHANGE_OP
from tfsched.grappler.collectives.bundles import Bundle, make_bundles
from tfsched.grappler.collectives.keys import AGREE_OP, PREFIX, STOCK, inputs_of
from tfsched.grappler.collectives.orders import Orders, decide
from tfsched.grappler.collectives.packs import ALL_REDUCE_OP, Element, Pack, find_packs
from tfsched.grappler.collectives.records import note
from tfsched.grappler.reading.graph import GraphView, digest, split_input
from tfsched.ordering import Plan

# The name, behind a pack's prefix, of the NoOp that runs when the step has all that the pack's updates are made from.
_HANDED = "handed"


@dataclasses.dataclass
class Exchanged:
    """What the pass did to a graph's all-reduces.

    Attributes:
      packs: how many are exchanged tensor by tensor, and ``tensors`` how many tensors or bundles these leave as.
      kept: reason -> how many stay as they are for it.
    """

    packs: int = 0
    tensors: int = 0
    kept: dict[str, int] = dataclasses.field(default_factory=dict)


def schedule_all_reduces(
    view: GraphView,
    needed: list[bool],
    visible: Collection[int],
    local: Collection[str],
    options: Options,
    plan: Plan | None = None,
    movable: bool = False,
) -> Exchanged:
    """Lets each tensor of a pack be exchanged by itself as soon as it exists, in place.

      before                                    after

      g_0 ─┐                                    TfschedAgree ─► agreed        (from the same keys as the stock op)
           ├─► ConcatV2 ─► CollectiveReduceV2
      g_n ─┘               (named R)  │         g_i ─► Switch_i ─true──► TfschedAllReduce_i ─────────► Merge_i ─► use_i
                                      ▼                   └────false─► ConcatV2 ─► stock op ─► SplitV ────┘
                           SplitV ─► use_0..n                                      (named R/stock)
      R ┄► other nodes                          Merge_0..n ┄► NoOp (named R) ┄► other nodes

    Where the step may be cut (barrier/updates.py) the choice comes first, so that nothing conditional is left there:

      g_i ─► Switch_i ─true─────────────────────────────────────┬─► Merge_i ─► TfschedAllReduceIfAgreed_i ─► use_i
                 └────false─► ConcatV2 ─► stock op ─► SplitV ───┘                        ▲
      TfschedAllReduceIfAgreed_0..n ┄► NoOp (named R) ┄► other nodes                   agreed

    All members of the group take the same branch, for all know what all others plan (cc/transport/agreeing.cc). What a plan
    groups is joined, and so are small tensors of which none says anything: ConcatV2 in front of their Switch and SplitV
    behind their Merge, and the other way round in the stock branch. Our ops wait for what the stock one waited for, but not
    for other all-reduces: stock's run one after another, and do so in the stock branch.

    Args:
      view: the placed graph; it does not see what is changed.
      needed: per node whether the step runs it.
      visible: numbers of the nodes whose outputs leave the step, or are given to it.
      local: tasks of this process's servers.
      options: which order, pieces, policy and credit.
      plan: whose order, groups and pieces win over the options'.
      movable: what follows an all-reduce may move behind the step's end.

    Returns:
      What was done. Running it on its own output does nothing.

    Raises:
      ValueError: the ordering cannot be used; nothing has been changed.
    """
    packs, kept = find_packs(view, needed, visible, local)
    if not packs:
        return Exchanged(kept=kept)
    orders = decide(view, packs, options, plan)
    bundles = make_bundles(view, packs, orders, options)
    replaced = {pack.reduce for pack in packs}
    ranks = 1 + max(rank for bundle in bundles for rank in (bundle.rank, *(rank for _, rank in bundle.pieces)))
    for number, pack in enumerate(packs):
        if movable:
            _wait_for_hand_over(view, pack.reduce)
        mine = [one for one in bundles if one.pack == number]
        _Rewrite(view, pack, mine, ranks, replaced, options, orders, movable).run()
    return Exchanged(len(packs), len(bundles), kept)


def _wait_for_hand_over(view: GraphView, number: int) -> None:
    """Has what only follows an all-reduce, stock's next one say, follow its hand-over: the result may come behind the step.

    What gathers control edges still follows the all-reduce itself, so that this is run whoever uses its result.
    """
    name = view.nodes[number].name
    for consumer in view.consumers[number]:
        node = view.nodes[consumer]
        for position, text in enumerate(node.input):
            if text == "^" + name and node.op != "NoOp":
                node.input[position] = f"^{PREFIX}{name}/{_HANDED}"


def policy(options: Options) -> str:
    """TicTac counts the transfers of a step, and waits for those that are missing: that fits one sender's reads, and not the
    messages of an all-reduce, which follow from each other. The queue by ranks that needs no count takes its place."""
    return "bytescheduler" if options.policy in (AUTO, "tictac") else options.policy


def _output(node: str, port: int) -> str:
    return node if port == 0 else f"{node}:{port}"


class _Rewrite:
    """One pack's."""

    def __init__(
        self,
        view: GraphView,
        pack: Pack,
        bundles: list[Bundle],
        count: int,
        replaced: set[int],
        options: Options,
        orders: Orders,
        movable: bool,
    ):
        self.movable, self.orders = movable, orders
        self.view, self.pack, self.bundles, self.count, self.options = view, pack, bundles, count, options
        self.node = view.nodes[pack.reduce]
        self.dtype = self.node.attr["T"].type
        # What the stock op waits for besides its data, but for other all-reduces.
        self.after = [f"^{view.nodes[source].name}" for source in view.control_inputs[pack.reduce] if source not in replaced]
        # Names are made from the stock op's, which is a graph's only one of that name.
        self.prefix = PREFIX + self.node.name
        self.keys = inputs_of(self.node, lambda name, value: self._const(name, [value], scalar=True))

    def run(self) -> None:
        agreed = self._add("agree", AGREE_OP, self.keys, plan=self._plan())
        switches = [
            self._add(f"switch_{number}", "Switch", [self._joined(number, bundle), agreed], T=self.dtype)
            for number, bundle in enumerate(self.bundles)
        ]
        true = [f"{switch}:1" for switch in switches]
        stock = self._stock_branch(switches)
        if not self.movable:
            done = results = self._merge(stock, self._exchange_all(true))
        else:
            merges = self._merge(stock, true)
            self._add(_HANDED, "NoOp", [f"^{merge}" for merge in merges])
            done = results = self._exchange_all(merges, agreed)
        for number, (bundle, result) in enumerate(zip(self.bundles, results, strict=True)):
            for member, tensor in zip(bundle.members, self._parts(f"{number}", bundle, result, agreed), strict=True):
                self._redirect(self.pack.elements[member], tensor)
        stand_in = self.view.graph.node.add(name=self.node_name, op="NoOp", device=self.node.device)
        stand_in.input.extend(f"^{name}" for name in done)

    def _joined(self, number: int, bundle: Bundle) -> str:
        """One tensor of the bundle's elements."""
        return self._concat(f"{number}", [self.pack.elements[member].tensor for member in bundle.members])

    def _merge(self, stock: list[str], ours: list[str]) -> list[str]:
        """Per bundle what comes out of the branch that was taken."""
        return [
            self._add(f"merge_{number}", "Merge", list(both), T=self.dtype, N=2)
            for number, both in enumerate(zip(stock, ours, strict=True))
        ]

    def _exchange_all(self, tensors: list[str], agreed: str = "") -> list[str]:
        """Reduces each bundle's tensor, if ``agreed`` where that is given; the results' names."""
        return [
            self._exchange(number, bundle, tensor, agreed)
            for number, (bundle, tensor) in enumerate(zip(self.bundles, tensors, strict=True))
        ]

    def _exchange(self, number: int, bundle: Bundle, tensor: str, agreed: str) -> str:
        reduced = self._add(
            f"reduce_{number}",
            EXCHANGE_OP if agreed else ALL_REDUCE_OP,
            [tensor, *self.keys, *([agreed] if agreed else []), *self.after],
            T=self.dtype,
            reduction=self.node.attr["merge_op"].s,
            mean=self.node.attr["final_op"].s == b"Div",
            element=number,
            elements=bundle.elements,
            piece_bytes=bundle.piece_bytes,
            whole_bytes=WHOLE_BYTES,
            transfer=self._traced_name(bundle).encode(),
            policy=policy(self.options).encode(),
            rank=bundle.rank,
            contribution_rank=bundle.first_rank,
            count=self.count,
            credit_bytes=self.options.credit_bytes,
            follow_link=bundle.follows_link,
        )
        for name, values in zip(("piece_elements", "piece_ranks"), zip(*bundle.pieces, strict=True), strict=False):
            self.view.graph.node[-1].attr[name].list.i.extend(values)
        note(self.view.graph.node[-1], self.view, self.pack, bundle, self.orders)
        return reduced

    def _stock_branch(self, switches: list[str]) -> list[str]:
        """Gives the stock op what the switches let through, and another name; the names of its results, one for each bundle.

        It packs as before, for a worker without tfsched may be among its peers: so what is joined comes apart first.
        """
        view = self.view
        self.node_name = self.node.name
        self.node.name = self.node_name + STOCK
        view.names.add(self.node.name)
        if self.pack.join is None or self.pack.part is None:
            self.node.input[0] = switches[0]
            return [self.node.name]
        join, part = view.nodes[self.pack.join], view.nodes[self.pack.part]
        for number, (bundle, switch) in enumerate(zip(self.bundles, switches, strict=True)):
            for member, tensor in zip(bundle.members, self._parts(f"{number}{STOCK}", bundle, switch, switch), strict=True):
                join.input[member] = tensor
        part.input[0] = self.node.name
        return [
            self._concat(f"{number}{STOCK}", [_output(part.name, member) for member in bundle.members])
            for number, bundle in enumerate(self.bundles)
        ]

    def _concat(self, name: str, tensors: list[str]) -> str:
        """The tensors as one."""
        if len(tensors) == 1:
            return tensors[0]
        axis = self._const(f"axis_{name}", [0], scalar=True, after=tensors[0])
        return self._add(f"join_{name}", "ConcatV2", [*tensors, axis], T=self.dtype, Tidx=types_pb2.DT_INT32, N=len(tensors))

    def _parts(self, name: str, bundle: Bundle, tensor: str, after: str) -> list[str]:
        """The elements of a bundle that is one tensor. Constants follow ``after``: the tensor may move behind the step."""
        if len(bundle.members) == 1:
            return [tensor]
        counts = [self.pack.elements[member].elements for member in bundle.members]
        sizes = self._const(f"sizes_{name}", counts, after=after)
        axis = self._const(f"split_axis_{name}", [0], scalar=True, after=after)
        part = self._add(
            f"part_{name}",
            "SplitV",
            [tensor, sizes, axis],
            T=self.dtype,
            Tlen=types_pb2.DT_INT32,
            num_split=len(counts),
        )
        return [_output(part, port) for port in range(len(counts))]

    def _redirect(self, element: Element, name: str) -> None:
        for number, position in element.consumers:
            self.view.nodes[number].input[position] = name

    def _traced_name(self, bundle: Bundle) -> str:
        first = split_input(self.pack.elements[bundle.members[0]].tensor)[0]
        return first if len(bundle.members) == 1 else f"{first} and {len(bundle.members) - 1} more"

    def _plan(self) -> bytes:
        """What all members have to have in common to exchange the pack, and what is good to have in common."""
        attr = self.node.attr
        counts = [element.elements for element in self.pack.elements]
        sizes = [
            ([counts[member] for member in one.members], one.piece_bytes, one.follows_link, one.pieces)
            for one in self.bundles
        ]
        ranks = [(bundle.rank, bundle.first_rank) for bundle in self.bundles]
        words = {
            "type": types_pb2.DataType.Name(self.dtype),
            "reduction": f"{attr['merge_op'].s.decode()}/{attr['final_op'].s.decode()}",
            "tensors": len(self.pack.elements),
            "elements": sum(element.elements for element in self.pack.elements),
            "order": self.orders.name,
            "partition_bytes": self.options.partition_bytes if self.options.partition_bytes > 0 else AUTO,
            "policy": policy(self.options),
            "credit_bytes": AUTO if self.options.credit_bytes == AUTO_BYTES else self.options.credit_bytes,
            "ranks": digest(repr(ranks).encode()),
            "sizes": digest(repr(sizes).encode()),
        }
        return " ".join(f"{key}={value}" for key, value in words.items()).encode()

    def _const(self, name: str, values: list[int], after: str = "", scalar: bool = False) -> str:
        """A constant in the branch of ``after``: one that is in none would do, but is in no loop either."""
        behind = ["^" + split_input(after)[0]] if after else []
        node_name = self._add(name, "Const", behind, dtype=types_pb2.DT_INT32)
        tensor = self.view.graph.node[-1].attr["value"].tensor
        tensor.dtype = types_pb2.DT_INT32
        tensor.tensor_shape.SetInParent()
        if not scalar:
            tensor.tensor_shape.dim.add(size=len(values))
        tensor.int_val.extend(values)
        return node_name

    def _add(self, name: str, op: str, inputs: list[str], **attrs: Any) -> str:
        node = self.view.graph.node.add(name=f"{self.prefix}/{name}", op=op, device=self.node.device)
        node.input.extend(inputs)
        for key, value in attrs.items():
            attr = node.attr[key]
            if isinstance(value, bytes):
                attr.s = value
            elif key in ("T", "Tidx", "Tlen", "dtype"):
                attr.type = value
            elif isinstance(value, bool):
                attr.b = value
            else:
                attr.i = value
        self.view.names.add(node.name)
        return node.name
