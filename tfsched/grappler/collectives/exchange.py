"""Puts scheduled all-reduces beside stock's, and the agreement that chooses between them in front of both."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from tensorflow.core.framework import types_pb2

from tfsched._options import Options
from tfsched.graph_ops import EXCHANGE_OP
from tfsched.grappler.collectives.bundles import Bundle, make_bundles, piece_bytes
from tfsched.grappler.collectives.keys import AGREE_OP, PREFIX, STOCK, inputs_of
from tfsched.grappler.collectives.orders import Orders, decide
from tfsched.grappler.collectives.packs import ALL_REDUCE_OP, Element, Pack, find_packs
from tfsched.grappler.collectives.records import note
from tfsched.grappler.reading.graph import GraphView, digest, split_input
from tfsched.ordering import Plan

# A tensor of at most so many bytes goes whole to everybody: one message less to wait for.
WHOLE_BYTES = 16_384

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
    groups is joined, and so are small tensors of which none says anything: ConcatV2 in front of their all-reduce and SplitV
    behind it. Our ops wait for what the stock one waited for, but not for other all-reduces: stock's run one after another,
    and do so in the stock branch.

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
    ranks = 1 + max(bundle.rank for bundle in bundles)
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
    return "bytescheduler" if options.policy == "tictac" else options.policy


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
            self._add(f"switch_{number}", "Switch", [element.tensor, agreed], T=self.dtype)
            for number, element in enumerate(self.pack.elements)
        ]
        true = [f"{switch}:1" for switch in switches]
        if not self.movable:
            ours = self._exchange_all(true)
            results = self._merge(self._stock_branch(switches), ours)
            done = results
        else:
            merges = self._merge(self._stock_branch(switches), true)
            self._add(_HANDED, "NoOp", [f"^{merge}" for merge in merges])
            results = self._exchange_all(merges, agreed)
            done = [f"{self.prefix}/reduce_{number}" for number in range(len(self.bundles))]
        for element, result in zip(self.pack.elements, results, strict=True):
            self._redirect(element, result)
        stand_in = self.view.graph.node.add(name=self.node_name, op="NoOp", device=self.node.device)
        stand_in.input.extend(f"^{name}" for name in done)

    def _merge(self, stock: list[str], ours: list[str]) -> list[str]:
        """Per element what comes out of the branch that was taken."""
        return [
            self._add(f"merge_{number}", "Merge", list(both), T=self.dtype, N=2)
            for number, both in enumerate(zip(stock, ours, strict=True))
        ]

    def _exchange_all(self, tensors: list[str], agreed: str = "") -> list[str]:
        """Reduces all elements, if ``agreed`` where that is given; their names in order."""
        results = [""] * len(tensors)
        for number, bundle in enumerate(self.bundles):
            members = [tensors[member] for member in bundle.members]
            for member, tensor in zip(bundle.members, self._exchange(number, bundle, members, agreed), strict=True):
                results[member] = tensor
        return results

    def _exchange(self, number: int, bundle: Bundle, tensors: list[str], agreed: str) -> list[str]:
        """Reduces a bundle; returns its tensors' names."""
        whole = tensors[0]
        if len(tensors) > 1:
            axis = self._const(f"axis_{number}", [0], scalar=True, after=agreed or tensors[0])
            whole = self._add(
                f"join_{number}", "ConcatV2", [*tensors, axis], T=self.dtype, Tidx=types_pb2.DT_INT32, N=len(tensors)
            )
        reduced = self._add(
            f"reduce_{number}",
            EXCHANGE_OP if agreed else ALL_REDUCE_OP,
            [whole, *self.keys, *([agreed] if agreed else []), *self.after],
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
        )
        note(self.view.graph.node[-1], self.view, self.pack, bundle, self.orders)
        if len(tensors) == 1:
            return [reduced]
        sizes = self._const(
            f"sizes_{number}",
            [self.pack.elements[member].elements for member in bundle.members],
            after=agreed or reduced,
        )
        axis = self._const(f"split_axis_{number}", [0], scalar=True, after=agreed or reduced)
        part = self._add(
            f"part_{number}",
            "SplitV",
            [reduced, sizes, axis],
            T=self.dtype,
            Tlen=types_pb2.DT_INT32,
            num_split=len(tensors),
        )
        return [part if port == 0 else f"{part}:{port}" for port in range(len(tensors))]

    def _stock_branch(self, switches: list[str]) -> list[str]:
        """Gives the stock op what the switches let through, and another name; returns its tensors' names."""
        view = self.view
        self.node_name = self.node.name
        self.node.name = self.node_name + STOCK
        view.names.add(self.node.name)
        if self.pack.join is None or self.pack.part is None:
            self.node.input[0] = switches[0]
            return [self.node.name]
        join, part = view.nodes[self.pack.join], view.nodes[self.pack.part]
        for position, switch in enumerate(switches):
            join.input[position] = switch
        part.input[0] = self.node.name
        return [part.name if port == 0 else f"{part.name}:{port}" for port in range(len(switches))]

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
        sizes = [([counts[member] for member in bundle.members], bundle.piece_bytes) for bundle in self.bundles]
        ranks = [(bundle.rank, bundle.first_rank) for bundle in self.bundles]
        words = {
            "type": types_pb2.DataType.Name(self.dtype),
            "reduction": f"{attr['merge_op'].s.decode()}/{attr['final_op'].s.decode()}",
            "tensors": len(self.pack.elements),
            "elements": sum(element.elements for element in self.pack.elements),
            "order": self.orders.name,
            "partition_bytes": piece_bytes(self.options, self.pack),
            "policy": policy(self.options),
            "credit_bytes": self.options.credit_bytes,
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
