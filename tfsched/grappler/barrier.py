"""Cuts a training step behind its gradients: pushes and updates become a function that runs in the background."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection
from typing import Any

from tensorflow.core.framework import graph_pb2, types_pb2

from tfsched.grappler import leftovers, read_ahead
from tfsched.grappler.clients import client_at
from tfsched.grappler.failures import part_failures
from tfsched.grappler.function_def import function_of
from tfsched.grappler.graph import Edge, GraphView, cpu_of, digest, task_of, task_suffix
from tfsched.grappler.op_types import output_dtype
from tfsched.grappler.orders import take_orders
from tfsched.grappler.piecewise import update_by_pieces
from tfsched.grappler.touches import Touches, Variable
from tfsched.grappler.transfers import COMMITTED_OP, DRAIN_OP, HANDLES_OP, marked_between
from tfsched.grappler.updates import Cut, find_cut
from tfsched.grappler.variables import HANDLE_OP, is_handle_argument

PREFIX = "tfsched/barrier/"
TOKEN = "tfsched_token"
CALL_OP = "TfschedBackgroundCall"
TAKE_OP = "TfschedTake"
# A graph that has one of these has been rewritten, or is what was cut off.
_OURS = {CALL_OP, TAKE_OP, DRAIN_OP}

_LOOP_ENTRY = {"Enter", "RefEnter"}


@dataclasses.dataclass
class Crossing:
    """A step that was cut.

    Attributes:
      home: the task that starts the background function.
      body: the function's nodes as a placed GraphDef, its argument a Placeholder named TOKEN.
      variables: those that are updated in the background.
      kept: variable -> why its update stays in the step.
      controls: names of the body's nodes that must run.
      lists: parameter server -> names of the body's nodes for handles that a step which is a function must name to it.
    """

    home: str
    body: Any
    variables: list[Variable]
    kept: dict[Variable, str]
    controls: list[str]
    lists: dict[str, list[str]]


def has_crossed(graph: Any) -> bool:
    """Whether the graph has been cut, is a cut-off part, or begins with a drain."""
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
    function: bool = False,
) -> tuple[Crossing | None, dict[Variable, str]]:
    """Cuts the step in place, if it trains.

      before                                    after: the step                            after: the body

      Read_i ─► ... ─► grad_i ─┼─► Apply_i      Wait_i ┄► Read_i ─► ... ─► grad_i          Expect ─► Ack
                                                Waits ┄► Gate ┄► BackgroundCall ─► token   Take_i ─┼─► Apply_i ┄► Notify_i
                                                token ─► Open;  grad_i, Open ─► Put_i
                                                Puts ┄► Join ┄► NoOp (named Apply_i)

    docs/barrier.md says what each op does and why the result is that of the uncut step.

    Returns:
      The crossing, or None where nothing moves; and per variable why its update stays in the step.
    """
    touches = Touches(view, needed)
    cut = find_cut(view, needed, touches, visible, capable)
    if not cut.updates:
        return None, cut.kept
    looped = _loop_frames(view)
    for variable, consumers in touches.by.items():
        if capable is not None and variable.task not in capable:
            continue
        if any(looped[number] for number in consumers):
            return None, {variable: "it is used by name inside a loop"}
    return _Surgeon(view, touches, cut, client, capable, set(visible), function).operate(), cut.kept


def _loop_frames(view: GraphView) -> list[bool]:
    """Per node: whether it is in a loop's frame, where no edge from outside may lead."""
    marked = marked_between(view, _LOOP_ENTRY, {"Exit", "RefExit"})
    return [inside and view.nodes[number].op not in _LOOP_ENTRY for number, inside in enumerate(marked)]


class _Surgeon:
    """Takes the updates out of one graph and puts the hand-over in."""

    def __init__(
        self,
        view: GraphView,
        touches: Touches,
        cut: Cut,
        client: str,
        capable: Collection[str] | None,
        visible: set[int],
        function: bool,
    ):
        self.function = function
        self.view = view
        self.graph = view.graph
        self.touches = touches
        self.cut = cut
        self.capable = capable
        self.visible = visible
        self.inside = set(cut.updates) | set(cut.moved)
        self.servers = sorted({view.tasks[number] for number in cut.updates})
        self.home = self._choose_home()
        self.client = who_trains(client, self.home, function)
        self.lists: dict[str, list[str]] = {}
        self.body = graph_pb2.GraphDef(versions=self.graph.versions)
        self.body.library.CopyFrom(self.graph.library)
        self.controls: list[str] = []
        self.ahead: list[read_ahead.Reader] = []
        self._taken: dict[Edge, str] = {}  # tensor of the step -> the node of the body that has it
        self._copies: dict[int, Any] = {}  # node of the step -> its copy in the body
        # The one that is used: what is not needed must not become so.
        self.handles = {variable: touches.handle(consumers[0], variable, view) for variable, consumers in touches.by.items()}

    def operate(self) -> Crossing:
        self.ahead = read_ahead.find_readers(self.view, self.touches, self.cut.updates, self.visible, self.capable)
        variables = list(dict.fromkeys(v for number in self.cut.updates for v in self.touches.of[number]))
        # The body first: it copies what the step then loses.
        self._build_body(variables)
        token = self._add_call(self._add_waits())
        join = self._add_hand_over(token)
        if self.ahead:
            committed = self._node("committed", COMMITTED_OP, self.home, [], client=self.client)
            for reader in self.ahead:
                read_ahead.replace_read(self.view, reader, self.client, committed, PREFIX)
        left = leftovers.leave_no_ops(self.view, {*self.cut.updates, *self.cut.late}, join, self.home)
        if self.function:  # nobody prunes it any more, and groups are made before it comes here
            leftovers.part_groups(self.view, left, self.visible, join)
            leftovers.remove(self.graph, {self.view.nodes[number].name for number in set(self.cut.moved) - left})
        return Crossing(self.home, self.body, variables, self.cut.kept, self.controls, self.lists)

    def _choose_home(self) -> str:
        """The task that hands over most, and holds no variables if there is such a one."""
        counts = Counter(self.view.tasks[edge.source] for edge in self.cut.boundary)
        return min(counts, key=lambda task: (task in self.servers, -counts[task], task))

    def _node(self, name: str, op: str, task: str, inputs: list[str], body: bool = False, **attrs: Any) -> str:
        node = (self.body if body else self.graph).node.add(op=op, device=cpu_of(task))
        node.input.extend(inputs)
        for key, value in attrs.items():
            attr = node.attr[key]
            if isinstance(value, bytes):
                attr.s = value
            elif isinstance(value, list):
                attr.list.s.extend(value)
            elif key == "T":
                attr.type = value
            else:
                attr.i = value
        # A session shares the kernels of its graphs by name: what differs must be called differently.
        content = digest(repr((op, task, sorted(attrs.items()))).encode())
        node.name = f"{PREFIX}{name}/{content}"
        return str(node.name)

    # --- the step ---

    def _add_waits(self) -> list[str]:
        """A Wait in front of all that touches a variable.

        Returns:
          What the call has to have: from each server a gate that opens behind all of its Waits. Where the step knows
          variables as its own arguments, their server's gate says which they are.
        """
        waits: dict[str, list[str]] = {task: [] for task in self.lists}
        for variable, consumers in self.touches.by.items():
            if self.capable is not None and variable.task not in self.capable:
                continue
            number = len(waits.setdefault(variable.task, []))
            wait = self._node(
                f"wait{task_suffix(variable.task)}/{number}",
                "TfschedWait",
                variable.task,
                [self.view.nodes[self.handles[variable]].name],
                client=self.client,
            )
            waits[variable.task].append("^" + wait)
            for consumer in dict.fromkeys(consumers):
                if consumer not in self.inside:
                    self.view.nodes[consumer].input.append("^" + wait)
        ids, gates = [], []
        for task, inputs in waits.items():
            names = self.lists.get(task)
            if names:
                ids.append(self._node(f"handles{task_suffix(task)}", HANDLES_OP, task, [*names, *inputs], N=len(names)))
            else:
                gates.append("^" + self._node(f"gate{task_suffix(task)}", "NoOp", task, inputs))
        return ids + gates

    def _add_call(self, gates: list[str]) -> str:
        return self._node("call", CALL_OP, self.home, gates, N=len(self.lists), client=self.client)

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
                [_tensor(source.name, edge.port), opened[task], *after.get(edge, ())],
                T=output_dtype(source, edge.port, self.graph.library)[0],
                key=_key(source.name, edge.port),
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
                if edge in self._taken:
                    return edge
                if edge.source in self.inside:
                    # What is read behind an update waits for what the update takes.
                    stack.append(self.cut.late.get(edge.source, edge.source))

    # --- the body ---

    def _build_body(self, variables: list[Variable]) -> None:
        argument = self.body.node.add(name=TOKEN, op="Placeholder", device=cpu_of(self.home))
        argument.attr["dtype"].type = types_pb2.DT_INT64
        expects: dict[str, str] = {}
        for task in self.servers:
            mine = [variable for variable in variables if variable.task == task]
            names = [self._handle(variable) for variable in mine]
            inputs = [TOKEN, *names]
            expects[task] = self._node(
                f"expect{task_suffix(task)}", "TfschedExpect", task, inputs, body=True, client=self.client, N=len(names)
            )
            arguments = [self.view.nodes[self.handles[one]].name for one in mine if self._is_argument(one)]
            if arguments:
                self.lists[task] = arguments
        count = len(expects)
        self.controls.append(self._node("ack", "TfschedAck", self.home, [TOKEN, *expects.values()], body=True, N=count))
        for edge in self.cut.boundary:
            self._add_take(edge)
        for number in [*self.cut.moved, *self.cut.updates]:
            for edge in self.view.data_inputs[number]:
                source = edge.source
                if source not in self.inside and edge not in self._taken and source not in self._copies:
                    self._copy(source, self.view.tasks[number])
            self._copy(number, self.view.tasks[number])
        readers: dict[int, list[str]] = {}  # update -> the reads that must see what it wrote, and nothing newer
        for read, update in self.cut.late.items():
            self._copies[read].input.append("^" + self._copies[update].name)
            readers.setdefault(update, []).append("^" + self._copies[read].name)
        for number in self.cut.updates:
            node = self._copies[number]
            task = self.view.tasks[number]
            node.input.append("^" + expects[task])
            if "use_locking" in node.attr or node.op.startswith("ResourceApply"):
                # Others may read while we write: the lock shows them the values before or after, never half of each.
                node.attr["use_locking"].b = True
            sent = self._send_ahead(number, expects[task])
            for variable in dict.fromkeys(self.touches.of[number]):
                after = [*sent.get(variable, ["^" + node.name]), *readers.get(number, ())]
                self.controls.append(
                    self._node(
                        f"notify{task_suffix(task)}/{len(self.controls)}",
                        "TfschedNotify",
                        task,
                        [expects[task], self._handle(variable), *after],
                        body=True,
                        client=self.client,
                    )
                )

    def _send_ahead(self, update: int, expected: str) -> dict[Variable, list[str]]:
        """Sends what the update wrote to the next step's readers; per variable what its Notify has to wait for then."""
        sent: dict[Variable, list[str]] = {}
        for number, reader in enumerate(self.ahead):
            if reader.variable not in self.touches.of[update]:
                continue
            names = (self._handle(reader.variable), expected, self._copies[update].name)
            ahead, stock = read_ahead.add_to_body(
                self.body, self.view, reader, names, self.client, f"{PREFIX}ahead/{number}/"
            )
            sent.setdefault(reader.variable, []).append("^" + ahead)
            self.controls.append(stock)
        return sent

    def _handle(self, variable: Variable) -> str:
        """The body's node for the variable's handle."""
        number = self.handles[variable]
        if number not in self._copies:
            self._copy(number, variable.task)
        return str(self._copies[number].name)

    def _is_argument(self, variable: Variable) -> bool:
        return is_handle_argument(self.view.nodes[self.handles[variable]])

    def _add_take(self, edge: Edge) -> None:
        source = self.view.nodes[edge.source]
        task = self.view.tasks[edge.source]
        name = self._node(
            f"take/{len(self._taken)}{task_suffix(task)}",
            TAKE_OP,
            task,
            [TOKEN],
            body=True,
            T=output_dtype(source, edge.port, self.graph.library)[0],
            key=_key(source.name, edge.port),
        )
        self.body.node[-1].attr["shape"].shape.unknown_rank = True
        self._taken[edge] = name

    def _copy(self, number: int, task: str) -> None:
        """Copies a node that moves, or a constant or a handle that a moved node takes."""
        source = self.view.nodes[number]
        node = self.body.node.add()
        node.CopyFrom(source)
        self._copies[number] = node
        node.attr.pop("_class", None)  # names of nodes that are not here
        del node.input[:]
        if number not in self.inside:  # a constant goes where it is used, a handle is there already
            node.device = cpu_of(task) if task_of(source.device) != task else source.device
            if source.op == HANDLE_OP and not source.attr["shared_name"].s:
                node.attr["shared_name"].s = source.name.encode()
            return
        for edge in self.view.data_inputs[number]:
            text = self._taken.get(edge)
            node.input.append(text if text is not None else _tensor(self.view.nodes[edge.source].name, edge.port))
        for control in self.view.control_inputs[number]:
            if control in self.inside and control != self.cut.late.get(number):
                node.input.append("^" + self.view.nodes[control].name)


def finish(graph: Any, crossing: Crossing) -> None:
    """Adds the body, which may have been rewritten since, to the graph's library as the function that the step calls."""
    arguments = [TOKEN, *take_orders(crossing.body, TOKEN, crossing.lists, PREFIX)]
    crossing.controls.append(part_failures(crossing.body, crossing.home, PREFIX))
    update_by_pieces(crossing.body, PREFIX)
    (call,) = (node for node in graph.node if node.op == CALL_OP)
    text = crossing.body.SerializeToString(deterministic=True)
    content = digest(text)
    name = f"tfsched_background_{content}"
    call.attr["f"].func.name = name
    # Kernels are shared by name, so the call's says which function it calls.
    old, call.name = call.name, f"{PREFIX}call/{content}"
    for node in graph.node:
        for position, source in enumerate(node.input):
            if source == old:
                node.input[position] = call.name
    function = function_of(crossing.body, name, arguments, TOKEN, crossing.controls)
    graph.library.function.append(function)


def who_trains(client: str, home: str, function: bool) -> bytes:
    """What the barrier's ops of one trainer share."""
    if function:
        return client_at(client, home).encode()
    return (client or "home:" + home).encode()


def begin_with_drain(
    view: GraphView, needed: list[bool], client: str, home: str, fetches: Collection[int], function: bool = False
) -> bool:
    """Makes a step that trains nothing wait for the client's updates, in place: it sees the last finished step's values.

      before                              after

      Read_i ─► ... ─► fetch              Drain (home) ┄► Read_i ─► ... ─► fetch ◄┄ Drain

    Returns:
      Whether anything was changed.
    """
    touches = Touches(view, needed)
    first = {number for consumers in touches.by.values() for number in consumers} | set(fetches)
    looped = _loop_frames(view)
    first = {number for number in first if not looped[number]}
    if not first:
        return False
    who = who_trains(client, home, function)
    drain = view.graph.node.add(name=f"{PREFIX}drain/{digest(who)}", op=DRAIN_OP, device=cpu_of(home))
    drain.attr["client"].s = who
    drain.attr["timeout_ms"].i = 0
    for number in sorted(first):
        view.nodes[number].input.append("^" + drain.name)
    return True


def _tensor(name: str, port: int) -> str:
    return name if port == 0 else f"{name}:{port}"


def _key(name: str, port: int) -> bytes:
    return f"{name}:{port}".encode()
