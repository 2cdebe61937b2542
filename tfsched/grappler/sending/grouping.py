"""Joins the transfers that a plan groups, so that each group leaves as one tensor."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from tfsched._rules import BLOCK_BYTES
from tfsched.graph_ops import AHEAD_OP, READ_OP
from tfsched.grappler.reading.graph import GraphView, cpu_of, split_input
from tfsched.grappler.reading.shapes import Shape, Shapes
from tfsched.grappler.reading.transfers import (
    FORKS,
    GROUP_OP,
    MADE_FROM_TRANSFERS,
    UNGROUP_OP,
    Transfer,
    find_transfers,
    tensor_name,
)
from tfsched.grappler.reading.variables import variable_behind
from tfsched.grappler.sending.partition import ELEMENT_BYTES
from tfsched.grappler.sending.proxies import unused_name
from tfsched.grappler.sending.pushes import find_pushes
from tfsched.ordering import Plan

PREFIX, UNGROUP_PREFIX = "tfsched/group/", "tfsched/ungroup/"
_NUMBER_BYTES = 8


@dataclasses.dataclass
class Joined:
    """What became of a plan's groups in one graph.

    Attributes:
      plan: the plan with an entry for each joined tensor: the priority of its most urgent member, and the smallest pieces.
      groups: how many tensors were joined, and ``members`` how many transfers they take the place of.
      alone: reason -> how many transfers leave alone although the plan groups them.
      places: name of a transfer -> its place in the order of first consumers, a joined tensor's that of its first member.
        Equal priorities follow this order, in which what was joined would come behind all others.
    """

    plan: Plan
    groups: int = 0
    members: int = 0
    alone: dict[str, int] = dataclasses.field(default_factory=dict)
    places: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class _Member:
    transfer: Transfer
    name: str
    shape: Shape


def join_groups(
    view: GraphView,
    needed: Sequence[bool],
    plan: Plan,
    with_pushes: bool,
    feeds: Iterable[str] = (),
    capable: Collection[str] | None = None,
) -> Joined:
    """Puts one tensor into the place of each group of transfers, in place. ``view`` does not see the new nodes.

      before                                  after

      PS         | worker                     PS                          | worker
      Read_a ────┼──► MatMul_a                Read_a ──► TfschedGroup ─────┼──► TfschedUngroup ──► MatMul_a
      Read_b ────┼──► MatMul_b                Read_b ──────►┘             |           └──────────► MatMul_b

    Joined are the values of variables, and pushes. A joined tensor exists when its last member does, so two things must not
    be: a member that is made with the help of another one, and a member that may never come.

    Args:
      view: the placed graph, without proxies and groups.
      needed: per node whether the step runs it.
      plan: with groups.
      with_pushes: pushes are ordered, too.
      feeds: names of the tensors that the step is given.
      capable: the tasks whose processes know tfsched's ops; None means all.
    """
    result = Joined(plan)
    by_name, by_source = _numbers(plan)
    everything = find_transfers(view, list(needed))
    for place, transfer in enumerate(everything):
        result.places.setdefault(transfer.name(view), place)
    transfers = [
        (transfer, number)
        for transfer in everything
        if (number := _group_of(transfer.plan_name(view), by_name, by_source)) is not None
    ]
    judge = _Judge(view, needed, [transfer for transfer, _ in transfers], with_pushes, feeds, capable)
    found: dict[tuple[int, str, str], list[_Member]] = {}
    for transfer, number in transfers:
        reason = judge.reason(transfer)
        if reason:
            result.alone[reason] = result.alone.get(reason, 0) + 1
            continue
        shape = judge.shape(transfer)
        assert shape is not None
        key = (number, view.nodes[transfer.source].device, transfer.device)
        found.setdefault(key, []).append(_Member(transfer, transfer.plan_name(view), shape))
    entries: dict[str, list[str]] = {}
    for members in found.values():
        if len(members) > 1:
            joined = _insert(view, members)
            entries[joined] = [member.name for member in members]
            result.places[joined] = min(result.places[member.transfer.name(view)] for member in members)
            result.groups, result.members = result.groups + 1, result.members + len(members)
    result.plan = _extended(plan, entries)
    return result


def members_of(graph: Any) -> dict[str, list[tuple[str, int]]]:
    """Name of a joined tensor -> (name of the tensor, its bytes) of each member, as plans and traces call tensors."""
    return {
        tensor_name(node.name, 0): [
            (tensor_name(*split_input(text)), size)
            for text, size in zip(_data_inputs(node), node.attr["bytes"].list.i, strict=True)
        ]
        for node in graph.node
        if node.op == GROUP_OP
    }


def grouped_bytes(sizes: Sequence[tuple[int, int]]) -> int:
    """How many bytes a joined tensor has; ``sizes`` are (rank, bytes) of its members. See cc/ops/transfers/grouped.h."""
    header = sum(_NUMBER_BYTES * (1 + rank) for rank, _ in sizes)
    return _in_whole_blocks(header) + sum(_in_whole_blocks(size) for _, size in sizes)


def _in_whole_blocks(size_bytes: int) -> int:
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


def _data_inputs(node: Any) -> Iterator[str]:
    return (text for text in node.input if not text.startswith("^"))


def _numbers(plan: Plan) -> tuple[dict[str, int], dict[str, int]]:
    """The number of the group of each transfer, by name and by source tensor; of groups of two and more."""
    by_name = {name: number for number, group in enumerate(plan.groups or ()) if len(group) > 1 for name in group}
    by_source: dict[str, int] = {}
    for name, number in by_name.items():
        by_source.setdefault(name.partition("@")[0], number)
    return by_name, by_source


def _group_of(name: str, by_name: dict[str, int], by_source: dict[str, int]) -> int | None:
    """As priorities are looked up: a plan traced on one worker serves the others."""
    return by_name.get(name, by_source.get(name.partition("@")[0]))


class _Judge:
    """Says which transfers can be joined with others."""

    def __init__(
        self,
        view: GraphView,
        needed: Sequence[bool],
        transfers: Sequence[Transfer],
        with_pushes: bool,
        feeds: Iterable[str],
        capable: Collection[str] | None,
    ):
        self._view, self._capable, self._shapes = view, capable, Shapes(view)
        self._feeds = {split_input(name) for name in feeds}
        self._forked = _behind(view, [number for number, node in enumerate(view.nodes) if node.op in FORKS])
        pushes = [one for group in find_pushes(view, needed, transfers, {}).values() for one in group] if with_pushes else []
        self._pushes = {id(one) for one in pushes}
        # What is made from a push cannot be waited for before that push.
        self._after_pushes = _behind(view, [number for one in pushes for number, _ in one.consumers])

    def shape(self, transfer: Transfer) -> Shape | None:
        """The tensor's shape."""
        return self._shapes.of_transfer(transfer)

    def reason(self, transfer: Transfer) -> str:
        """Why the transfer leaves alone; "" if it need not."""
        view, source = self._view, self._view.nodes[transfer.source]
        if self._capable is not None and not {transfer.sender, transfer.receiver} <= {*self._capable}:
            return "between tasks of which one is without tfsched"
        if source.op in (READ_OP, AHEAD_OP):
            return "sent ahead across the barrier"
        if transfer.keep not in ("", MADE_FROM_TRANSFERS):
            return transfer.keep
        if transfer.dtype not in ELEMENT_BYTES:
            return "of a type that is not joined"
        if (source.name, transfer.port) in self._feeds:
            return "fed"
        if id(transfer) in self._pushes:
            if self._after_pushes[transfer.source]:
                return "made from other pushes"
        elif transfer.keep or variable_behind(view, transfer.source) is None:
            return "neither a variable's value nor an ordered push"
        if self._forked[transfer.source]:
            return "behind a loop or a branch"
        return "of unknown size" if self.shape(transfer) is None else ""


def _behind(view: GraphView, starts: Iterable[int]) -> list[bool]:
    """Per node: whether it is one of ``starts`` or depends on one."""
    marked = [False] * len(view.nodes)
    stack = list(starts)
    while stack:
        number = stack.pop()
        if not marked[number]:
            marked[number] = True
            stack.extend(view.consumers[number])
    return marked


def _insert(view: GraphView, members: Sequence[_Member]) -> str:
    """Groups some transfers of one device to another; returns the name of the transfer that they are now."""
    first = members[0].transfer
    group, ungroup = view.graph.node.add(), view.graph.node.add()
    group.name, group.op, group.device = unused_name(view, PREFIX, first), GROUP_OP, view.nodes[first.source].device
    ungroup.name, ungroup.op = unused_name(view, UNGROUP_PREFIX, first), UNGROUP_OP
    ungroup.device = first.device if "CPU" in first.device.rpartition("/")[2].upper() else cpu_of(first.receiver)
    ungroup.input.append(group.name)
    sizes = []
    for place, member in enumerate(members):
        transfer = member.transfer
        source = view.nodes[transfer.source].name
        group.input.append(source if transfer.port == 0 else f"{source}:{transfer.port}")
        for node in (group, ungroup):
            node.attr["T"].list.type.append(transfer.dtype)
        shape = ungroup.attr["shapes"].list.shape.add()
        for size in member.shape:
            shape.dim.add().size = size
        size_bytes = math.prod(member.shape) * ELEMENT_BYTES[transfer.dtype]
        group.attr["bytes"].list.i.append(size_bytes)
        sizes.append((len(member.shape), size_bytes))
        for number, position in transfer.consumers:
            view.nodes[number].input[position] = ungroup.name if place == 0 else f"{ungroup.name}:{place}"
    # What shape inference would find if it knew shapes from bytes: chunks need it.
    group.attr["_output_shapes"].list.shape.add().dim.add().size = grouped_bytes(sizes)
    return f"{tensor_name(group.name, 0)}@{first.receiver}"


def _extended(plan: Plan, entries: dict[str, list[str]]) -> Plan:
    """The plan with the joined tensors among its transfers."""
    priorities, pieces = dict(plan.priorities), dict(plan.partition_bytes)
    for joined, members in entries.items():
        priorities[joined] = min(one for name in members if (one := plan.priority_of(name)) is not None)
        wanted = [size for name in members if (size := plan.partition_bytes_of(name)) is not None]
        if wanted:
            pieces[joined] = min(filter(None, wanted), default=0)
    return dataclasses.replace(plan, priorities=priorities, partition_bytes=pieces)
