"""Cuts a training step behind its gradients: pushes and updates become a function that runs in the background."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from tfsched.grappler.barrier import read_ahead, stand_ins
from tfsched.grappler.barrier.background import CALL_OP, PREFIX, Body, add_node, mailbox_key, tensor_name
from tfsched.grappler.barrier.updates import Cut, find_cut
from tfsched.grappler.reading.clients import client_of_session, client_of_worker
from tfsched.grappler.reading.graph import Edge, GraphView, task_suffix
from tfsched.grappler.reading.op_types import output_dtype
from tfsched.grappler.reading.transfers import COMMITTED_OP, DRAIN_OP, HANDLES_OP, TAKE_OP, WAIT_OP, loop_frames
from tfsched.grappler.reading.variable_uses import Variable, VariableUses

# A graph that has one of these has been rewritten, or is what was cut off.
_OURS = {CALL_OP, TAKE_OP, DRAIN_OP, WAIT_OP}


def has_crossed(graph: Any) -> bool:
    """Whether the graph has been cut, is a cut-off part, or waits for what was cut off others."""
    return any(node.op in _OURS for node in graph.node)


def is_background(graph: Any) -> bool:
    """Whether the graph is what was cut off a step: the function, or part of it."""
    return any(node.op == TAKE_OP for node in graph.node)


def cross(
    view: GraphView,
    needed: list[bool],
    client: str,
    visible: Collection[int],
    capable: Collection[str] | None,
    home: str = "",
) -> tuple[Body | None, dict[Variable, str]]:
    """Cuts the step in place, if it trains.

      before                                    after: the step                            after: the body

      Read_i ─► ... ─► grad_i ─┼─► Apply_i      Wait_i ┄► Read_i ─► ... ─► grad_i          Expect ─► Ack
                                                Waits ┄► Gate ┄► BackgroundCall ─► token   Take_i ─┼─► Apply_i ┄► Notify_i
                                                token ─► Open;  grad_i, Open ─► Put_i
                                                Puts ┄► Join ┄► NoOp (named Apply_i)

    docs/barrier.md says what each op does and why the result is that of the uncut step.

    Args:
      view: the placed graph.
      needed: per node whether the step runs it.
      client: who trains.
      visible: numbers of the nodes whose outputs leave the step or come from outside.
      capable: the tasks whose processes know tfsched's ops; None means all.
      home: the task that is to start the background function of a session's step; "" for a function, which finds its own.

    Returns:
      What was cut off, to be finished when its transfers are ordered, or None where nothing moves; and per variable why its
      update stays in the step.
    """
    uses = VariableUses(view, needed)
    cut = find_cut(view, needed, uses, visible, capable)
    if not cut.updates:
        return None, cut.kept
    looped = loop_frames(view)
    for variable, consumers in uses.by.items():
        if capable is not None and variable.task not in capable:
            continue
        if any(looped[number] for number in consumers):
            reason = f"{variable.name} is used by name inside a loop"
            return None, {**cut.kept, **{uses.of[number][0]: reason for number in cut.updates}}
    return _Step(view, uses, cut, client, capable, set(visible), home).part(), cut.kept


class _Step:
    """The step that loses its updates and gets the hand-over."""

    def __init__(
        self,
        view: GraphView,
        uses: VariableUses,
        cut: Cut,
        client: str,
        capable: Collection[str] | None,
        visible: set[int],
        home: str,
    ):
        self.function = not home
        self.view = view
        self.graph = view.graph
        self.uses = uses
        self.cut = cut
        self.capable = capable
        self.visible = visible
        self.inside = cut.inside
        self.home = home or self._choose_home()
        who = client_of_worker if self.function else client_of_session
        self.client = who(client, self.home).encode()
        self.body = Body(view, uses, cut, self.home, self.client)

    def part(self) -> Body:
        ahead = read_ahead.find_readers(self.view, self.uses, self.cut.updates, self.visible, self.capable)
        # The body first: it copies what the step then loses.
        # Who reads what a worker updates in its own memory may be anybody in its process.
        self.body.build(ahead, shared=not self.function or bool(self.cut.reduced))
        token = self._add_call(self._add_waits())
        join = self._add_hand_over(token)
        if ahead:
            committed = self._node("committed", COMMITTED_OP, self.home, [], client=self.client, asynchronous=self.function)
            for reader in ahead:
                read_ahead.replace_read(self.view, reader, self.client, committed, PREFIX)
        left = stand_ins.leave_no_ops(self.view, {*self.cut.updates, *self.cut.late, *self.cut.reduced}, join, self.home)
        if self.function:  # nobody prunes it any more, and groups are made before it comes here
            stand_ins.part_groups(self.view, left, self.visible, join)
            stand_ins.remove(self.graph, {self.view.nodes[number].name for number in set(self.cut.moved) - left})
        return self.body

    def _choose_home(self) -> str:
        """The task that hands over most, and holds no variables if there is such a one."""
        counts = Counter(self.view.tasks[edge.source] for edge in self.cut.boundary)
        servers = {self.view.tasks[number] for number in self.cut.updates}
        return min(counts, key=lambda task: (task in servers, -counts[task], task))

    def _node(self, name: str, op: str, task: str, inputs: list[str], **attrs: Any) -> str:
        return add_node(self.graph, name, op, task, inputs, **attrs)

    def _add_waits(self) -> list[str]:
        """A Wait in front of all that uses a variable.

        Returns:
          What the call has to have: from each server a gate that opens behind all of its Waits. Where the step knows
          variables as its own arguments, their server's gate says which they are.
        """
        waits: dict[str, list[str]] = {task: [] for task in self.body.lists}
        for variable, consumers in self.uses.by.items():
            if self.capable is not None and variable.task not in self.capable:
                continue
            number = len(waits.setdefault(variable.task, []))
            wait = self._node(
                f"wait{task_suffix(variable.task)}/{number}",
                WAIT_OP,
                variable.task,
                [self.view.nodes[self.body.handles[variable]].name],
                client=self.client,
                N=1,
            )
            waits[variable.task].append("^" + wait)
            for consumer in dict.fromkeys(consumers):
                if consumer not in self.inside:
                    self.view.nodes[consumer].input.append("^" + wait)
        ids, gates = [], []
        for task, inputs in waits.items():
            names = self.body.lists.get(task)
            if names:
                ids.append(self._node(f"handles{task_suffix(task)}", HANDLES_OP, task, [*names, *inputs], N=len(names)))
            else:
                gates.append("^" + self._node(f"gate{task_suffix(task)}", "NoOp", task, inputs))
        return ids + gates

    def _add_call(self, gates: list[str]) -> str:
        return self._node("call", CALL_OP, self.home, gates, N=len(self.body.lists), client=self.client)

    def _add_hand_over(self, token: str) -> str:
        """Mailboxes and Puts on the tasks that have something to hand over, and the Join that waits for them all."""
        slots = Counter(self.view.tasks[edge.source] for edge in self.cut.boundary)
        opened = {
            task: self._node(f"open{task_suffix(task)}", "TfschedOpen", task, [token], client=self.client, slots=count)
            for task, count in sorted(slots.items())
        }
        done: dict[str, list[str]] = {task: [] for task in opened}
        after = self._orders()
        for edge in self.cut.boundary:
            source = self.view.nodes[edge.source]
            task = self.view.tasks[edge.source]
            put = self._node(
                f"put/{len(done[task])}{task_suffix(task)}",
                "TfschedPut",
                task,
                [tensor_name(source.name, edge.port), opened[task], *after.get(edge, ())],
                T=output_dtype(source, edge.port, self.graph.library)[0],
                key=mailbox_key(source.name, edge.port),
            )
            done[task].append("^" + put)
        ends = [self._node(f"handed_over{task_suffix(task)}", "NoOp", task, inputs) for task, inputs in done.items()]
        # What the moved ops were to follow may have effects of its own, so the step still does it.
        before = dict.fromkeys(
            source for number in self.inside for source in self.view.control_inputs[number] if source not in self.inside
        )
        ends += [self.view.nodes[source].name for source in before]
        return self._node("join", "TfschedJoin", self.home, [token, *("^" + name for name in ends)])

    def _orders(self) -> dict[Edge, list[str]]:
        """Handed-over tensor -> the control inputs that its Put gets, since an update that takes it had them."""
        orders: dict[Edge, list[str]] = {}
        for number in self.cut.updates:
            outside = [source for source in self.view.control_inputs[number] if source not in self.inside]
            if outside:
                first = self._first_boundary(number)
                orders.setdefault(first, []).extend("^" + self.view.nodes[source].name for source in outside)
        return orders

    def _first_boundary(self, number: int) -> Edge:
        stack = [number]
        while True:  # ends: only what takes something from the step is moved
            for edge in self.view.data_inputs[stack.pop(0)]:
                if edge in self.body.taken:
                    return edge
                if edge.source in self.inside:
                    # What is read behind an update waits for what the update takes.
                    stack.append(self.cut.late.get(edge.source, edge.source))
