"""The pieces that a Plan has a workload's parameters sent in: what the wire makes of its priorities, groups and sizes."""

from __future__ import annotations

from collections.abc import Sequence

from tfsched.ordering import Plan

from .cutting import Parts, Piece, Planned, bundled, cut, split
from .workload import Parameter, Workload


def planned_pieces(
    workload: Workload,
    servers: Sequence[int],
    plan: Plan,
    places: Sequence[float],
    partition_bytes: int,
    bundles: bool,
    sent_ahead: bool,
) -> list[Piece]:
    """Return all pieces of a step, in no order.

    What makes a gradient goes by the gradient's entry in the plan, its pull by the parameter's.

    Args:
      workload: whose parameters are called as the plan's transfers.
      servers: of each parameter.
      plan: with its groups and pieces.
      places: of each parameter the plan does not name: behind what it names, the smallest first.
      partition_bytes: pieces of what the plan says no size of; 0: whole.
      bundles: whether small tensors are joined where the plan has no groups, as those that are all-reduced are.
      sent_ahead: whether servers send new values as soon as they have them. These leave alone; their gradients are pushed in
        the plan's groups (docs/plans.md#groups).
    """
    parameters = workload.parameters
    names = [_sent_as(parameter) for parameter in parameters]
    of_pieces = [one for cut_to in plan.pieces.values() for _, one in cut_to]
    last = max([*plan.priorities.values(), *of_pieces], default=0.0) + 1.0
    behind = {i: last + place for place, i in enumerate(sorted(range(len(parameters)), key=lambda i: places[i]))}

    def priority(i: int, name: str) -> float:
        found = plan.priority_of(name)
        return behind[i] if found is None else found

    pushed = [priority(i, name) for i, name in enumerate(names)]
    pulled = [priority(i, parameter.name) for i, parameter in enumerate(parameters)]
    pieces: list[Piece] = []
    messages: list[Planned] = [(message, False, 0.0) for message in _messages(workload, plan, names)]
    if bundles and plan.groups is None:
        messages = bundled(messages, partition_bytes)
    for message in messages:
        for parts, _, _ in split([message], workload, servers):
            members = [i for i, _ in parts]
            planned = plan.pieces_of(names[members[0]]) if len(members) == 1 else ()
            if planned and sum(size for size, _ in planned) == parts[0][1]:
                label = parameters[members[0]].name
                pieces += (
                    Piece((members[0],), size, servers[members[0]], f"{label}#{number}/{len(planned)}", one)
                    for number, (size, one) in enumerate(planned)
                )
            else:
                wanted = [size for i in members if (size := plan.partition_bytes_of(names[i])) is not None]
                most_bytes = min(filter(None, wanted), default=0) if wanted else partition_bytes
                made = cut(parts, workload, servers, pushed, most_bytes, None)
                first = parameters[members[0]]
                if sent_ahead and len(members) > 1 and first.made_by and first.pulled:
                    group = tuple(members)
                    pieces += (piece._replace(only="push", group=group) for piece in made)
                    for part in parts:
                        size = plan.partition_bytes_of(parameters[part[0]].name)
                        alone = cut([part], workload, servers, pulled, partition_bytes if size is None else size, None)
                        pieces += (piece._replace(only="pull", group=group) for piece in alone)
                else:
                    pieces += made
    return [piece._replace(pull_priority=min(pulled[i] for i in piece.parameters)) for piece in pieces]


def _sent_as(parameter: Parameter) -> str:
    return parameter.pushed_as or parameter.name


def _messages(workload: Workload, plan: Plan, names: Sequence[str]) -> list[Parts]:
    """What leaves as one tensor."""
    parameters = workload.parameters
    group_of: dict[str, int] = {}
    for number, group in enumerate(plan.groups or ()):
        group_of.update(dict.fromkeys(group, number))
        for name in group:
            group_of.setdefault(name.partition("@")[0], number)
    messages: dict[object, Parts] = {}
    for i, (parameter, name) in enumerate(zip(parameters, names, strict=True)):
        joined = group_of.get(name, group_of.get(name.partition("@")[0]))
        messages.setdefault(("alone", i) if joined is None else joined, []).append((i, parameter.size_bytes))
    return list(messages.values())
