"""The pushes of traced steps: which gradient updates which variable, when it was there, and when the variable was used."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from tfsched.graph_ops import PASSING_ON, WHOLE_READS, is_update, update_name
from tfsched.grappler.reading.graph import GraphView
from tfsched.grappler.reading.transfers import Transfer, find_transfers, tensor_name
from tfsched.tracing.exchanges import Rate, TracedExchange, rate_of_rows

_IDENTITIES = frozenset({"Identity", "Snapshot", "StopGradient", "PreventGradient"})


@dataclasses.dataclass(frozen=True)
class Push:
    """One gradient that a task sends to another one, which updates a variable with it.

    Attributes:
      sent: as a gradient that is exchanged: its name in plans, its bytes, the ops that make it and first use its variable.
      sender, receiver: tasks.
      pulls: names in plans of the transfers that bring the variable to the sender.
      other_name: what it is called where TensorFlow's optimizers have taken identities away behind the op that makes it, as
        they do in some graphs and not in others; "" if it is called the same.
      update_name: what it is called by the variable (:func:`tfsched.graph_ops.update_name`) where it comes from an op that
        TensorFlow has made of several, as it has no such op in the graph that tfsched sees; "" elsewhere.
    """

    sent: TracedExchange
    sender: str
    receiver: str
    pulls: tuple[str, ...]
    other_name: str = ""
    update_name: str = ""

    def other_names(self) -> tuple[str, ...]:
        """All that it may be called besides."""
        return tuple(filter(None, (self.other_name, self.update_name)))


def pushes_of(view: GraphView, sizes: dict[str, int]) -> list[Push]:
    """All pushes of a placed graph, in the order of their first consumers.

    A push is a transfer that leads to the update of a variable on its receiver, and to no transfer.

    Args:
      view: without proxies, chunks and groups; attributes are not needed.
      sizes: transfer name -> bytes.
    """
    transfers = find_transfers(view, [True] * len(view.nodes), classify=False)
    pulls: dict[tuple[int, str], list[Transfer]] = {}
    for transfer in transfers:
        pulls.setdefault((_root(view, transfer.source), transfer.receiver), []).append(transfer)
    found = []
    for transfer in transfers:
        variables = _updated(view, transfer)
        if not variables:
            continue
        back = [pull for variable in variables for pull in pulls.get((variable, transfer.sender), ())]
        use = view.nodes[back[0].consumers[0][0]].name if back else ""
        name = transfer.name(view)
        sent = TracedExchange(name, sizes.get(name, 0), view.nodes[transfer.source].name, use, name)
        other = _without_identities(view, transfer)
        pulled = tuple(pull.name(view) for pull in back)
        fused = view.nodes[transfer.source].op.startswith("_") and len(variables) == 1
        update = update_name(view.nodes[variables[0]].name, transfer.receiver) if fused else ""
        found.append(Push(sent, transfer.sender, transfer.receiver, pulled, other if other != name else "", update))
    return found


def computing_alone(steps: Iterable[Any], nodes: Iterable[Any], task: str) -> list[Any]:
    """The steps with the ops of one task only, as if that had never been idle.

    A step that keeps the barrier waits for its pulls amid the forward pass. Across the barrier, or in another order, it
    would wait elsewhere. So plans are made of when ops would run if everything were there.

    Args:
      steps: TracedSteps.
      nodes: (name, op, device, inputs) of the placed graph.
      task: as in ``Push.sender``.
    """
    mine = {name for name, _, device, _ in nodes if f"{device}/".startswith(f"{task}/")}
    result = []
    for step in steps:
        ops = {}
        idle_us, busy_until_us = 0, None
        for name, (start_us, duration_us) in sorted(step.ops.items(), key=lambda item: item[1]):
            if name not in mine:
                continue
            if busy_until_us is not None:
                idle_us += max(0, start_us - busy_until_us)
            busy_until_us = max(start_us + duration_us, busy_until_us or 0)
            ops[name] = (start_us - idle_us, duration_us)
        result.append(dataclasses.replace(step, ops=ops))
    return result


def rate_between(sender: str, receiver: str, steps: Iterable[Any]) -> Rate | None:
    """What a message between two tasks costs, from what the schedulers sent in traced steps; None where they sent nothing.

    Both directions are taken for alike: pushes wait for the gradients, so that their times say little of the link.
    """
    rows = [
        [row for row in step.sends if row["from"] == receiver and row["to"] == sender and row["released_us"] >= 0]
        for step in steps
    ]
    return rate_of_rows([[row for row in one if not row["dropped"] and row["bytes"] > 0] for one in rows])


def _without_identities(view: GraphView, transfer: Transfer) -> str:
    """The transfer's name if it came from the op behind all identities."""
    number, port = transfer.source, transfer.port
    while view.nodes[number].op in _IDENTITIES and view.data_inputs[number] and view.data_inputs[number][0].source >= 0:
        number, port = view.data_inputs[number][0]
    return f"{tensor_name(view.nodes[number].name, port)}@{transfer.receiver}"


def _root(view: GraphView, number: int) -> int:
    """The node that a variable's value or handle comes from; without attributes, whatever that is."""
    seen = set()
    while number not in seen and view.nodes[number].op in PASSING_ON | WHOLE_READS and view.data_inputs[number]:
        seen.add(number)
        source = view.data_inputs[number][0].source
        if source < 0:
            break
        number = source
    return number


def _updated(view: GraphView, transfer: Transfer) -> list[int]:
    """The variables that a transfer helps to update; none if it also leads to another task."""
    roots: dict[int, None] = {}
    stack = [number for number, _ in transfer.consumers]
    seen = set(stack)
    while stack:
        number = stack.pop()
        if view.tasks[number] != transfer.receiver:
            return []
        if is_update(view.nodes[number].op):
            edge: Sequence[Any] = view.data_inputs[number]
            if edge and edge[0].source >= 0:
                roots[_root(view, edge[0].source)] = None
            continue
        for consumer in view.consumers[number]:
            if consumer not in seen and any(edge.source == number for edge in view.data_inputs[consumer]):
                seen.add(consumer)
                stack.append(consumer)
    return list(roots)
