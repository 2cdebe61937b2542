"""What tells a stock all-reduce apart from others: inputs of CollectiveReduceV2, attributes of CollectiveReduce."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfsched.grappler.reading.clients import is_function
from tfsched.grappler.reading.graph import GraphView, split_input

REDUCE_OP, OLD_REDUCE_OP, AGREE_OP = "CollectiveReduceV2", "CollectiveReduce", "TfschedAgree"
REDUCE_OPS = {REDUCE_OP, OLD_REDUCE_OP}
# Before the names of the nodes that replace an all-reduce, which follow.
PREFIX = "tfsched/all_reduce/"
# Behind the name of the all-reduce that they stand beside.
STOCK = "/stock"

_KEYS = ("group_size", "group_key", "instance_key")
_CONSTANTS = {"Const", "HostConst"}


def already_scheduled(view: GraphView) -> set[int]:
    """Numbers of the stock all-reduces that an earlier run of the pass has put beside its own."""
    keys = {node.input[2] for node in view.nodes if node.op == AGREE_OP}
    found = {number for number, node in enumerate(view.nodes) if node.op == REDUCE_OP and node.input[3] in keys}
    return found | {
        number
        for number, node in enumerate(view.nodes)
        if node.op in REDUCE_OPS and f"{PREFIX}{node.name.removesuffix(STOCK)}/agree" in view.index
    }


def tells_no_calls_apart(view: GraphView, number: int) -> bool:
    """Whether two calls of an all-reduce may have the same name.

    In a session the keys are constants, and the name has the step's number, which all workers' sessions have alike: stock
    TensorFlow takes it from the group's leader, for its own messages need it as well. Functions have no such number.
    """
    if not is_function(view.graph):
        return False
    if view.nodes[number].op == OLD_REDUCE_OP:
        return True
    key = view.index.get(split_input(view.nodes[number].input[3])[0])
    return key is not None and view.nodes[key].op in _CONSTANTS


def inputs_of(node: Any, constant: Callable[[str, int], str]) -> list[str]:
    """The inputs group_size, group_key and instance_key of the ops that replace an all-reduce.

    Args:
      node: the stock op.
      constant: makes a constant of a name and a value, and returns its node's name.
    """
    if node.op == REDUCE_OP:
        return list(node.input[1:4])
    return [constant(key, node.attr[key].i) for key in _KEYS]
