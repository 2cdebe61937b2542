"""What a traced step has to know of its all-reduces, kept as attributes on the ops that exchange them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tfsched.graph_ops import EXCHANGE_OP
from tfsched.grappler.collectives.bundles import Bundle
from tfsched.grappler.collectives.orders import Orders
from tfsched.grappler.collectives.packs import ALL_REDUCE_OP, TYPES, Pack
from tfsched.grappler.reading.graph import GraphView, split_input

# Lists with an entry for each element that the op exchanges; TensorFlow takes any attribute whose name begins like this.
_NAMES, _SIZES, _MAKERS, _USES = (f"_tfsched_{what}" for what in ("names", "bytes", "makers", "uses"))
OPS = (ALL_REDUCE_OP, EXCHANGE_OP)


class Exchanged(NamedTuple):
    """One gradient of a step that was exchanged.

    Attributes:
      name: in plans.
      size_bytes: of the tensor.
      maker: the op that makes it.
      use: the op in which a forward pass first uses the variable that it updates; "" if there is none.
      transfer: what the messages are called that carry it, perhaps with others.
    """

    name: str
    size_bytes: int
    maker: str
    use: str
    transfer: str


def note(node: Any, view: GraphView, pack: Pack, bundle: Bundle, orders: Orders) -> None:
    """Writes it on ``node``, which exchanges the bundle."""
    element_bytes = TYPES[node.attr["T"].type]
    for member in bundle.members:
        element, use = pack.elements[member], orders.uses[bundle.pack, member]
        node.attr[_NAMES].list.s.append(orders.names[bundle.pack, member].encode())
        node.attr[_SIZES].list.i.append(element.elements * element_bytes)
        node.attr[_MAKERS].list.s.append(split_input(element.tensor)[0].encode())
        node.attr[_USES].list.s.append(b"" if use is None else view.nodes[use.node].name.encode())


def keep(graph: Any, copy: Any) -> None:
    """Adds the ops that exchange something to ``copy``, without inputs; those behind the step's end are in functions."""
    nodes = [node for function in graph.library.function for node in function.node_def]
    present = {node.name: node for node in copy.node}
    for node in [*graph.node, *nodes]:
        if node.op in OPS and node.attr[_NAMES].list.s:
            kept = present.get(node.name) or copy.node.add(name=node.name, op=node.op, device=node.device)
            for key in (_NAMES, _SIZES, _MAKERS, _USES, "transfer"):
                kept.attr[key].CopyFrom(node.attr[key])


def exchanged(graph: Any) -> Iterator[Exchanged]:
    """What the ops of a graph that was kept exchange, in the graph's order."""
    for node in graph.node:
        if node.op not in OPS:
            continue
        lists = [node.attr[_NAMES].list.s, node.attr[_SIZES].list.i, node.attr[_MAKERS].list.s, node.attr[_USES].list.s]
        for name, size_bytes, maker, use in zip(*lists, strict=True):
            transfer = node.attr["transfer"].s.decode()
            yield Exchanged(name.decode(), size_bytes, maker.decode(), use.decode(), transfer)
