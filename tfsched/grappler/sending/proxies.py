"""Inserts Dependency Proxies into a graph, and takes them out again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tfsched._options import Options
from tfsched.grappler.reading.graph import GraphView, split_input
from tfsched.grappler.reading.transfers import (
    GROUP_OP,
    MERGE_OP,
    PROXY_OP,
    SPLIT_OP,
    UNGROUP_OP,
    Transfer,
    tensor_name,
)
from tfsched.grappler.sending.ranks import Ranked

PREFIX = "tfsched/proxy/"


def strip_proxies(graph: Any) -> Any:
    """Undoes proxies, chunks (partition.py) and groups (grouping.py), whoever made the nodes.

    Returns:
      ``graph`` itself if it has none, else a GraphDef without them; ``graph`` is used up.
    """
    behind = _stand_ins(graph)
    parts, groups = _parts(graph, behind)
    if not behind and not parts:
        return graph
    result = type(graph)(versions=graph.versions, library=graph.library)
    for node in graph.node:
        if node.name in behind or node.name in parts or node.name in groups:
            continue
        inputs = [one for text in node.input for one in _bare(text, behind, parts)]
        if inputs != list(node.input):
            del node.input[:]
            node.input.extend(inputs)
        result.node.append(node)
    return result


def _bare(text: str, behind: Mapping[str, str], parts: Mapping[str, list[str]]) -> list[str]:
    """What an input stood for: one, but for a control input from where a group is taken apart."""
    name, port = split_input(text)
    if port < 0:
        # A control edge from what stands in for a tensor means that the tensor was made.
        texts = parts.get(name, [behind[name]] if name in behind else None)
        made = [one for each in texts for one in _bare(each, behind, parts)] if texts is not None else None
        return [text] if made is None else list(dict.fromkeys("^" + split_input(one)[0] for one in made))
    while name in behind or name in parts:
        text = behind[name] if name in behind else parts[name][port]
        name, port = split_input(text)
    return [text]


def _parts(graph: Any, behind: Mapping[str, str]) -> tuple[dict[str, list[str]], set[str]]:
    """Name of what takes a group apart -> the group's tensors; and the names of the groups that nobody else reads."""
    groups = {node.name: [text for text in node.input if text[0] != "^"] for node in graph.node if node.op == GROUP_OP}
    parts: dict[str, list[str]] = {}
    for node in graph.node:
        if node.op == UNGROUP_OP:
            grouped = split_input(_bare(node.input[0], behind, {})[0])[0]
            if grouped in groups:
                parts[node.name] = groups[grouped]
    kept = {
        split_input(one)[0]
        for node in graph.node
        if groups and node.name not in behind and node.name not in parts
        for text in node.input
        for one in _bare(text, behind, {})
    }
    return parts, groups.keys() - kept


def _stand_ins(graph: Any) -> dict[str, str]:
    """Name of a node -> the input that it stands for: of proxies, and of splits whose chunks all end in one merge.

    Where another optimizer has changed what is between a split and a merge, say for constants, they are left as they are:
    the merge is still right.
    """
    behind = {node.name: node.input[0] for node in graph.node if node.op == PROXY_OP}
    splits = {node.name: node for node in graph.node if node.op == SPLIT_OP}
    if not splits:
        return behind
    for node in graph.node:
        if node.op == MERGE_OP:
            name = split_input(node.input[0])[0]
            chunks = [split_input(text) for text in node.input if not text.startswith("^")]
            split = splits.get(name)
            if split is not None and chunks == [(name, port) for port in range(split.attr["N"].i)]:
                behind[node.name] = split.input[0]
    kept = {split_input(text)[0] for node in graph.node if node.name not in behind for text in node.input if text[0] != "^"}
    behind.update({name: split.input[0] for name, split in splits.items() if name not in kept})
    return behind


def insert_proxies(view: GraphView, ranked: Sequence[Ranked], options: Options) -> None:
    """Puts a proxy in front of each transfer, in place. ``view`` does not see the new nodes.

      before                                    after

      PS          | worker                      PS                            | worker
      Read_i ─────┼──► MatMul_i                 Read_i ─► TfschedProxy_i ─────┼──► MatMul_i
         └──► local consumer                       └──► local consumer

    The proxy stands on the sender's device. Consumers on the sender's own task keep their edge.
    """
    for one in ranked:
        if one.cut is None:
            proxy = add_sender(view, one, options, PROXY_OP, PREFIX)
            redirect(view, one, proxy.name)


def add_sender(view: GraphView, one: Ranked, options: Options, op: str, prefix: str) -> Any:
    """A new node that tags a transfer, beside the transfer's source."""
    transfer = one.transfer
    source = view.nodes[transfer.source]
    node = view.graph.node.add()
    node.name = unused_name(view, prefix, transfer)
    node.op = op
    node.device = source.device
    node.input.append(source.name if transfer.port == 0 else f"{source.name}:{transfer.port}")
    node.attr["T"].type = transfer.dtype
    node.attr["transfer"].s = tensor_name(source.name, transfer.port).encode()
    node.attr["receiver"].s = transfer.receiver.encode()
    node.attr["policy"].s = options.policy.encode()
    node.attr["rank"].i = one.rank
    node.attr["count"].i = one.count
    node.attr["credit_bytes"].i = options.credit_bytes
    node.attr["copy"].b = transfer.copy
    return node


def redirect(view: GraphView, one: Ranked, name: str) -> None:
    """Gives the transfer's consumers the first output of ``name`` instead of the source."""
    for number, position in one.transfer.consumers:
        view.nodes[number].input[position] = name


def unused_name(view: GraphView, prefix: str, transfer: Transfer) -> str:
    """A name for a node of a transfer: what its sources and device are called, in characters that node names may have."""
    name = prefix + re.sub(r"[^A-Za-z0-9_./-]", "_", f"{view.nodes[transfer.source].name}_{transfer.port}{transfer.device}")
    candidate, suffix = name, 0
    while candidate in view.names:
        suffix += 1
        candidate = f"{name}_{suffix}"
    view.names.add(candidate)
    return candidate
