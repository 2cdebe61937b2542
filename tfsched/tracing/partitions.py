"""Joins the partition graphs of a traced step back into one placed graph, and names its transfers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tensorflow.core.framework import graph_pb2

from tfsched.grappler.barrier.guards import is_guard
from tfsched.grappler.reading.graph import split_input, task_of
from tfsched.grappler.reading.transfers import PROXY_OP, SPLIT_OP
from tfsched.grappler.sending.grouping import members_of
from tfsched.grappler.sending.proxies import strip_proxies

_SENDS = {"_Send", "_HostSend"}
_RECVS = {"_Recv", "_HostRecv"}


class Key(NamedTuple):
    """What the runtime's transfer events name a transfer by."""

    tensor_name: str
    send_device: str
    recv_device: str


def key_of(node: Any) -> Key:
    """The key of a _Send or _Recv node."""
    return Key(node.attr["tensor_name"].s.decode(), node.attr["send_device"].s.decode(), node.attr["recv_device"].s.decode())


def join(partitions: Iterable[Any]) -> tuple[Any, dict[Key, list[str]]]:
    """Undoes the partitioning, and tfsched's own proxies, chunks, groups and waits with it.

      before                                       after

      PS: Read ─► TfschedProxy ─► _Send            PS: Read ─────► worker: MatMul
      worker: _Recv ─► MatMul

    Args:
      partitions: GraphDefs, one a device, as ``RunMetadata.partition_graphs`` has them.

    Returns:
      A placed GraphDef, and for each tensor between tasks the names in Plans of the transfers that it is: one for all chunks
      of a transfer, several of a group.
    """
    sent: dict[Key, str] = {}
    received: dict[str, Key] = {}
    nodes: list[Any] = []
    behind: dict[str, str] = {}
    for partition in partitions:
        for node in partition.node:
            if node.op in _SENDS:
                if node.input and not node.attr["client_terminated"].b:
                    sent[key_of(node)] = node.input[0]
            elif node.op in _RECVS:
                received[node.name] = key_of(node)
            elif not is_guard(node.name):
                nodes.append(node)
                if node.op in (PROXY_OP, SPLIT_OP):
                    behind[node.name] = node.input[0]
    graph = graph_pb2.GraphDef()
    for node in nodes:
        copy = graph.node.add()
        copy.CopyFrom(node)
        del copy.input[:]
        for text in node.input:
            if is_guard(split_input(text)[0]):
                continue
            key = received.get(split_input(text)[0])
            if key is None:
                copy.input.append(text)
            elif key in sent:
                source = sent[key]
                copy.input.append("^" + split_input(source)[0] if text.startswith("^") else source)
            # else: fed by the client, not by another partition
        copy.input.sort(key=lambda text: text.startswith("^"))  # data first, as GraphDefs want it; sorting is stable
    members = members_of(graph)
    graph = strip_proxies(graph)
    names: dict[Key, list[str]] = {}
    for key, source in sent.items():
        receiver = task_of(key.recv_device)
        if task_of(key.send_device) != receiver:
            name, port = split_input(behind.get(split_input(source)[0], source))
            tensor = f"{name}:{max(port, 0)}"
            names[key] = [f"{member}@{receiver}" for member, _ in members.get(tensor, [(tensor, 0)])]
    return graph, names
