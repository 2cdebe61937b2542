"""Finds the transfers of a placed graph, and says which of them can be ordered."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tensorflow.core.framework import types_pb2

from tfsched.graph_ops import AHEAD_OP, FORWARDING, SELECT_OP
from tfsched.grappler.reading.graph import GraphView, task_of
from tfsched.grappler.reading.op_types import has_ref_input, output_dtype

# What the pass puts into the place of a transfer.
PROXY_OP = "TfschedProxy"
# Before the name of a read that stands in for the one of that name (barrier/read_ahead.py).
READ_PREFIX = "tfsched/barrier/read/"
# What such a read takes besides its variable: there when the step begins, and never late (docs/barrier.md).
COMMITTED_OP = "TfschedCommitted"
# What a step that trains nothing waits for before all else: when it is over everything of the step may begin.
DRAIN_OP = "TfschedDrain"
# What takes a tensor out of a step's mailbox, in the background; its key is the tensor's name in the step.
TAKE_OP = "TfschedTake"
# What waits for the updates of variables on their own task.
WAIT_OP = "TfschedWait"
# What a function's step tells its background call (handle_lists.py).
HANDLES_OP = "TfschedHandles"
SPLIT_OP, MERGE_OP = "TfschedSplit", "TfschedMerge"
GROUP_OP, UNGROUP_OP = "TfschedGroup", "TfschedUngroup"

# Why a transfer is left alone where an ordering of what exists at the start of the step has no say.
MADE_FROM_TRANSFERS = "made from other transfers"
# The same rank comes again with every turn of a loop, and a branch may not be taken.
CONDITIONAL = "in a loop or a branch"

# The bytes of these are not the tensor's: handles, boxed values, strings of any length. They are sent as they are.
_NOT_FLAT = {types_pb2.DT_STRING, types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT, types_pb2.DT_INVALID}

_CONSTANTS = {"Const", "HostConst"}

# Where a loop or a branch begins and ends.
FORKS = {"Enter", "RefEnter", "Switch", "RefSwitch", "_SwitchN"}
_LOOP_ENTRY, _LOOP_EXIT = {"Enter", "RefEnter"}, {"Exit", "RefExit"}
JOINS = {"Exit", "RefExit", "Merge", "RefMerge"}


@dataclasses.dataclass
class Transfer:
    """A tensor that crosses tasks: one source output, one receiving device, all its consumers there.

    Attributes:
      source: number of the node that makes the tensor, and ``port`` which of its outputs.
      sender, receiver: tasks.
      device: the receiving device.
      consumers: (node number, input position) pairs.
      dtype: a DataType number.
      keep: why the transfer is left unordered; "" if it can be ordered.
      copy: the source's bytes may change while it waits (a reference variable): send a snapshot.
    """

    source: int
    port: int
    sender: str
    receiver: str
    device: str
    consumers: list[tuple[int, int]]
    dtype: int = types_pb2.DT_INVALID
    keep: str = ""
    copy: bool = False

    def name(self, view: GraphView) -> str:
        """ "conv1/ReadVariableOp:0@/job:worker/replica:0/task:0", as Plans call it."""
        return f"{tensor_name(view.nodes[self.source].name, self.port)}@{self.receiver}"

    def plan_name(self, view: GraphView) -> str:
        """As Plans call it: in a background function the transfer of the step that it takes the place of."""
        node = view.nodes[self.source]
        if node.op == TAKE_OP:
            return f"{node.attr['key'].s.decode()}@{self.receiver}"
        if node.op == AHEAD_OP:
            return f"{tensor_name(node.attr['key'].s.decode().rpartition('@')[0], 0)}@{self.receiver}"
        return self.name(view)


def tensor_name(node: str, port: int) -> str:
    """What Plans and traces call a node's output: by the name that the user's graph has for it."""
    return f"{node.removeprefix(READ_PREFIX)}:{port}"


def find_transfers(
    view: GraphView, needed: list[bool], classify: bool = True, places: Mapping[str, int] | None = None
) -> list[Transfer]:
    """All data edges between tasks, in the topological order of their first consumer.

    What only waits for a value that was sent ahead is no consumer: all of these come before anything that computes.

    Args:
      view: the placed graph, without proxies.
      needed: per node whether the step will run it; the others will be pruned, and a transfer that never comes would be
        waited for.
      classify: find out which can be ordered; needs the nodes' attributes.
      places: name -> its place in that order before some were joined; what it does not hold comes last.
    """
    transfers: dict[tuple[int, int, str], Transfer] = {}
    for number in view.topological:
        receiver = view.tasks[number]
        if not needed[number] or not receiver:
            continue
        for position, (source, port) in enumerate(view.data_inputs[number]):
            if source < 0 or not view.tasks[source] or view.tasks[source] == receiver:
                continue
            key = (source, port, view.nodes[number].device)
            if key not in transfers:
                transfers[key] = Transfer(source, port, view.tasks[source], receiver, view.nodes[number].device, [])
            transfers[key].consumers.append((number, position))
    found = list(transfers.values())
    if any(node.op == SELECT_OP for node in view.nodes):
        turn = {number: place for place, number in enumerate(view.topological)}
        last = len(turn)
        found.sort(key=lambda one: min(turn.get(user, last) for number, _ in one.consumers for user in _users(view, number)))
    if places:
        found.sort(key=lambda one: places.get(one.name(view), len(places)))
    if classify:
        _classify(view, found)
    return found


def _users(view: GraphView, number: int) -> list[int]:
    """The consumer, or those of the value that it selects."""
    selected = view.consumers[number] if view.nodes[number].op == SELECT_OP else []
    return selected or [number]


def _classify(view: GraphView, transfers: list[Transfer]) -> None:
    """Fills in dtype, keep and copy."""
    waits = _waits_for_transfer(view)
    conditional = marked_between(view, FORKS, JOINS)
    for transfer in transfers:
        node = view.nodes[transfer.source]
        transfer.dtype, is_ref = output_dtype(node, transfer.port, view.graph.library)
        transfer.copy = is_ref or sees_reference(view, transfer.source)
        if transfer.dtype in _NOT_FLAT:
            transfer.keep = "not a flat tensor"
        elif node.op in (COMMITTED_OP, HANDLES_OP):
            transfer.keep = "the scheduler's own"
        elif node.op in _CONSTANTS:
            transfer.keep = "a constant"  # Grappler may yet move it to the receiver
        elif "CPU" not in node.device.rpartition("/")[2].upper():
            transfer.keep = "not in host memory"
        elif conditional[transfer.source]:
            transfer.keep = CONDITIONAL
        elif waits[transfer.source]:
            # Its time of arrival is the computation's business. Ordering it could make it wait for a transfer that waits
            # for it. TicTac too orders the leaves of the receiver's partition (section 2.4).
            transfer.keep = MADE_FROM_TRANSFERS
        elif any(has_ref_input(view.nodes[number], position) for number, position in transfer.consumers):
            transfer.keep = "consumed by reference"


def _waits_for_transfer(view: GraphView) -> list[bool]:
    """Per node: whether anything it depends on crossed tasks, data or control."""
    waits = [False] * len(view.nodes)
    for number in view.topological:
        task = view.tasks[number]
        waits[number] = any(
            (waits[source] or view.tasks[source] != task) and view.nodes[source].op not in (COMMITTED_OP, DRAIN_OP)
            for source in view.inputs(number)
        )
    return waits


def marked_between(view: GraphView, forks: set[str], joins: set[str]) -> list[bool]:
    """Per node: whether it may run more than once a step, or not at all (between Enter and Exit, Switch and Merge).

    Errs to one side only: after the inner Merge of nested branches a node counts as unconditional. Its transfer may then
    never come, which the policy's rule for missing ranks survives.
    """
    marked = [False] * len(view.nodes)
    stack = [number for number, node in enumerate(view.nodes) if node.op in forks]
    while stack:
        number = stack.pop()
        if marked[number]:
            continue
        marked[number] = True
        stack.extend(c for c in view.consumers[number] if view.nodes[c].op not in joins)
    return marked


def loop_frames(view: GraphView) -> list[bool]:
    """Per node: whether its inputs are of a loop's frame, so that no edge from outside may lead to it."""
    marked = marked_between(view, _LOOP_ENTRY, _LOOP_EXIT)
    return [
        node.op in _LOOP_EXIT or (inside and node.op not in _LOOP_ENTRY)
        for node, inside in zip(view.nodes, marked, strict=True)
    ]


def sees_reference(view: GraphView, number: int) -> bool:
    """Whether the node's output may share its bytes with a reference variable."""
    seen = set()
    stack = [number]
    while stack:
        number = stack.pop()
        if number in seen:
            continue
        seen.add(number)
        node = view.nodes[number]
        for edge in view.data_inputs[number]:
            if edge.source < 0 or node.op not in FORWARDING:
                continue
            source = view.nodes[edge.source]
            if output_dtype(source, edge.port, view.graph.library)[1]:
                return True
            stack.append(edge.source)
    return False


def receivers(transfers: list[Transfer]) -> list[str]:
    """The tasks that receive something that can be ordered, in a fixed order."""
    return sorted({transfer.receiver for transfer in transfers if not transfer.keep})


def is_placed(graph: Any) -> bool:
    """Whether the graph spans at least two tasks: anything else has no transfers."""
    tasks = {task_of(device) for device in {node.device for node in graph.node}}
    return len(tasks - {""}) > 1
