"""Inserts Dependency Proxies into a graph, and takes them out again."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from tfsched.grappler.graph import GraphView, split_input
from tfsched.grappler.transfers import PROXY_OP, Transfer
from tfsched.options import Options

PREFIX = "tfsched/proxy/"


@dataclasses.dataclass(frozen=True)
class Ranked:
    """A transfer and its place among the ordered ones between the same two tasks."""

    transfer: Transfer
    rank: int
    count: int


def strip_proxies(graph: Any) -> Any:
    """Undoes :func:`insert_proxies`, whoever made the proxies.

    Returns:
      ``graph`` itself if it has none, else a GraphDef without them; ``graph`` is used up.
    """
    behind = {node.name: node.input[0] for node in graph.node if node.op == PROXY_OP}
    if not behind:
        return graph
    result = type(graph)(versions=graph.versions, library=graph.library)
    for node in graph.node:
        if node.op == PROXY_OP:
            continue
        for position, text in enumerate(node.input):
            name, port = split_input(text)
            if name in behind:
                while name in behind:
                    text = behind[name]
                    name = split_input(text)[0]
                # A control edge from a proxy means that its tensor was made.
                node.input[position] = text if port >= 0 else "^" + name
        result.node.append(node)
    return result


def insert_proxies(view: GraphView, ranked: Sequence[Ranked], options: Options) -> None:
    """Puts a proxy in front of each transfer, in place. ``view`` does not see the new nodes.

      before                                    after

      PS          | worker                      PS                            | worker
      Read_i ─────┼──► MatMul_i                 Read_i ─► TfschedProxy_i ─────┼──► MatMul_i
         └──► local consumer                       └──► local consumer

    The proxy stands on the sender's device. Consumers on the sender's own task keep their edge.
    """
    taken = set(view.index)
    for one in ranked:
        transfer = one.transfer
        source = view.nodes[transfer.source]
        proxy = view.graph.node.add()
        proxy.name = _unused(PREFIX + _path(f"{source.name}_{transfer.port}") + _path(transfer.device), taken)
        proxy.op = PROXY_OP
        proxy.device = source.device
        proxy.input.append(source.name if transfer.port == 0 else f"{source.name}:{transfer.port}")
        proxy.attr["T"].type = transfer.dtype
        proxy.attr["transfer"].s = f"{source.name}:{transfer.port}".encode()
        proxy.attr["receiver"].s = transfer.receiver.encode()
        proxy.attr["policy"].s = options.policy.encode()
        proxy.attr["rank"].i = one.rank
        proxy.attr["count"].i = one.count
        proxy.attr["credit_bytes"].i = options.credit_bytes
        proxy.attr["copy"].b = transfer.copy
        for number, position in transfer.consumers:
            view.nodes[number].input[position] = proxy.name


def _path(text: str) -> str:
    """Only characters that node names may have."""
    return re.sub(r"[^A-Za-z0-9_./-]", "_", text)


def _unused(name: str, taken: set[str]) -> str:
    candidate, suffix = name, 0
    while candidate in taken:
        suffix += 1
        candidate = f"{name}_{suffix}"
    taken.add(candidate)
    return candidate
