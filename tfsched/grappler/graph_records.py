"""Records what the pass made of a function's graph, where a trace asks for it: nobody else can tell what ran on a worker."""

from __future__ import annotations

import ctypes
from typing import Any

from tensorflow.core.framework import graph_pb2

from tfsched.grappler.collectives import records
from tfsched.grappler.reading.graph import GraphView, split_input, task_of
from tfsched.grappler.reading.transfers import GROUP_OP, SPLIT_OP

# Key of the optimizer's parameter map; its value names the trace.
PARAMETER = "trace"


def record(api: ctypes.CDLL, key: str, request: Any, rewritten: Any | None) -> None:
    """Hands the library the graph as it will run, for the op TfschedKeptGraphs to take out.

    Args:
      api: the native library.
      key: names the trace.
      request: what the pass was given.
      rewritten: what it made of the graph; None where it left it alone.
    """
    given = request.collection_def
    fetches = [split_input(name)[0] for name in given["fetch"].node_list.value]
    graph = request.graph_def if rewritten is None else rewritten
    text = bare(graph, [*fetches, *given["keep"].node_list.value] if fetches else []).SerializeToString()
    api.tfsched_keep_graph(key.encode(), " ".join(given["id"].node_list.value).encode(), text, len(text))


def bare(graph: Any, wanted: list[str]) -> Any:
    """A copy of what the ``wanted`` nodes need, without any of everything; of placed nodes only, and with few attributes."""
    view = GraphView(graph)
    needed = view.ancestors(wanted) if wanted else [True] * len(view.nodes)
    copy = graph_pb2.GraphDef()
    for node, is_needed in zip(view.nodes, needed, strict=True):
        if is_needed and task_of(node.device):
            kept = copy.node.add(name=node.name, op=node.op, device=node.device, input=node.input)
            if node.op == SPLIT_OP:
                kept.attr["N"].CopyFrom(node.attr["N"])  # strip_proxies() asks for it
            elif node.op == GROUP_OP:
                kept.attr["bytes"].CopyFrom(node.attr["bytes"])  # members_of() asks for it
    records.keep(graph, copy)
    return copy
