"""Builds what runs behind a step that crosses the barrier: the function that takes gradients, updates and notifies."""

from __future__ import annotations

from typing import Any

from tensorflow.core.framework import graph_pb2, types_pb2

from tfsched.graph_ops import HANDLE_OP
from tfsched.grappler.barrier import read_ahead
from tfsched.grappler.barrier.failures import part_failures
from tfsched.grappler.barrier.function_def import function_of
from tfsched.grappler.barrier.handle_lists import take_orders
from tfsched.grappler.barrier.piecewise import update_by_pieces
from tfsched.grappler.barrier.updates import Cut
from tfsched.grappler.reading.graph import Edge, GraphView, cpu_of, digest, task_of, task_suffix
from tfsched.grappler.reading.op_types import output_dtype
from tfsched.grappler.reading.transfers import TAKE_OP
from tfsched.grappler.reading.variable_uses import Variable, VariableUses
from tfsched.grappler.reading.variables import is_handle_argument

PREFIX = "tfsched/barrier/"
TOKEN = "tfsched_token"
CALL_OP = "TfschedBackgroundCall"


def add_node(graph: Any, name: str, op: str, task: str, inputs: list[str], **attrs: Any) -> str:
    """Adds one of the barrier's ops to a GraphDef, on the CPU of a task; returns the name that it got."""
    node = graph.node.add(op=op, device=cpu_of(task))
    node.input.extend(inputs)
    for key, value in attrs.items():
        attr = node.attr[key]
        if isinstance(value, bytes):
            attr.s = value
        elif isinstance(value, list):
            attr.list.s.extend(value)
        elif key == "T":
            attr.type = value
        elif isinstance(value, bool):
            attr.b = value
        else:
            attr.i = value
    # A session shares the kernels of its graphs by name: what differs must be called differently.
    content = digest(repr((op, task, sorted(attrs.items()))).encode())
    node.name = f"{PREFIX}{name}/{content}"
    return str(node.name)


def tensor_name(name: str, port: int) -> str:
    """A node's input that is its producer's output of that number."""
    return name if port == 0 else f"{name}:{port}"


def mailbox_key(name: str, port: int) -> bytes:
    """Under which a tensor is put by the step and taken by the body."""
    return f"{name}:{port}".encode()


class Body:
    """What moves out of one step, copied from it. The step's graph is only read.

    Attributes:
      graph: the function's nodes as a placed GraphDef, its argument a Placeholder named TOKEN.
      home: the task that starts the function.
      variables: those that are updated in it.
      handles: variable -> number of the step's node for its handle.
      controls: names of the nodes that must run.
      lists: parameter server -> names of the step's nodes for handles that a step which is a function must name to it.
      taken: tensor of the step -> the node that takes it.
    """

    def __init__(self, view: GraphView, uses: VariableUses, cut: Cut, home: str, client: bytes):
        """
        Args:
          view: the step.
          uses: which of its nodes use which variable.
          cut: what moves.
          home: the task that starts the function.
          client: who trains.
        """
        self.graph = graph_pb2.GraphDef(versions=view.graph.versions)
        self.graph.library.CopyFrom(view.graph.library)
        # The one that is used: what is not needed must not become so.
        self.handles = {variable: uses.handle(consumers[0], variable, view) for variable, consumers in uses.by.items()}
        self.controls: list[str] = []
        self.lists: dict[str, list[str]] = {}
        self.taken: dict[Edge, str] = {}
        self.home = home
        self.variables = list(dict.fromkeys(variable for number in cut.updates for variable in uses.of[number]))
        self._view, self._uses, self._cut, self._client = view, uses, cut, client
        self._inside = cut.inside
        self._copies: dict[int, Any] = {}  # node of the step -> its copy

    def build(self, ahead: list[read_ahead.Reader], shared: bool) -> None:
        """Fills the graph.

        Args:
          ahead: the next step's reads that are answered from here.
          shared: readers who are other clients wait for the updates, too.
        """
        argument = self.graph.node.add(name=TOKEN, op="Placeholder", device=cpu_of(self.home))
        argument.attr["dtype"].type = types_pb2.DT_INT64
        expects: dict[str, str] = {}
        for task in sorted({self._view.tasks[number] for number in self._cut.updates}):
            mine = [variable for variable in self.variables if variable.task == task]
            names = [self._handle(variable) for variable in mine]
            inputs = [TOKEN, *names]
            expects[task] = self._node(
                f"expect{task_suffix(task)}", "TfschedExpect", task, inputs, client=self._client, N=len(names), shared=shared
            )
            arguments = [self._view.nodes[self.handles[one]].name for one in mine if self._is_argument(one)]
            if arguments:
                self.lists[task] = arguments
        expected = list(expects.values())
        self.controls.append(self._node("ack", "TfschedAck", self.home, [TOKEN, *expected], N=len(expected)))
        for edge in self._cut.boundary:
            self._add_take(edge)
        for number in [*self._cut.moved, *self._cut.updates]:
            for edge in self._view.data_inputs[number]:
                source = edge.source
                if source not in self._inside and edge not in self.taken and source not in self._copies:
                    self._copy(source, self._view.tasks[number])
            self._copy(number, self._view.tasks[number])
        readers: dict[int, list[str]] = {}  # update -> the reads that must see what it wrote, and nothing newer
        for read, update in self._cut.late.items():
            self._copies[read].input.append("^" + self._copies[update].name)
            readers.setdefault(update, []).append("^" + self._copies[read].name)
        for number in self._cut.updates:
            node = self._copies[number]
            task = self._view.tasks[number]
            node.input.append("^" + expects[task])
            if "use_locking" in node.attr or node.op.startswith("ResourceApply"):
                # Others may read while we write: the lock shows them the values before or after, never half of each.
                node.attr["use_locking"].b = True
            sent = self._send_ahead(number, expects[task], ahead)
            for variable in dict.fromkeys(self._uses.of[number]):
                after = [*sent.get(variable, ["^" + node.name]), *readers.get(number, ())]
                self.controls.append(
                    self._node(
                        f"notify{task_suffix(task)}/{len(self.controls)}",
                        "TfschedNotify",
                        task,
                        [expects[task], self._handle(variable), *after],
                    )
                )

    def finish(self, graph: Any) -> None:
        """Adds the body, which may have been rewritten since, to the step's library as the function that it calls."""
        arguments = [TOKEN, *take_orders(self.graph, TOKEN, self.lists, PREFIX)]
        self.controls.append(part_failures(self.graph, self.home, TOKEN, PREFIX))
        update_by_pieces(self.graph, PREFIX)
        (call,) = (node for node in graph.node if node.op == CALL_OP)
        content = digest(self.graph.SerializeToString(deterministic=True))
        name = f"tfsched_background_{content}"
        call.attr["f"].func.name = name
        # Kernels are shared by name, so the call's says which function it calls.
        old, call.name = call.name, f"{PREFIX}call/{content}"
        for node in graph.node:
            for position, source in enumerate(node.input):
                if source == old:
                    node.input[position] = call.name
        graph.library.function.append(function_of(self.graph, name, arguments, TOKEN, self.controls))

    def _send_ahead(self, update: int, expected: str, readers: list[read_ahead.Reader]) -> dict[Variable, list[str]]:
        """Sends what the update wrote to the next step's readers; per variable what its Notify has to wait for then."""
        sent: dict[Variable, list[str]] = {}
        for number, reader in enumerate(readers):
            if reader.variable not in self._uses.of[update]:
                continue
            names = (self._handle(reader.variable), expected, self._copies[update].name)
            sent_ahead, stock = read_ahead.add_to_body(
                self.graph, self._view, reader, names, self._client, f"{PREFIX}ahead/{number}/"
            )
            sent.setdefault(reader.variable, []).append("^" + sent_ahead)
            self.controls.append(stock)
        return sent

    def _handle(self, variable: Variable) -> str:
        """The body's node for the variable's handle."""
        number = self.handles[variable]
        if number not in self._copies:
            self._copy(number, variable.task)
        return str(self._copies[number].name)

    def _is_argument(self, variable: Variable) -> bool:
        return is_handle_argument(self._view.nodes[self.handles[variable]])

    def _add_take(self, edge: Edge) -> None:
        source = self._view.nodes[edge.source]
        task = self._view.tasks[edge.source]
        name = self._node(
            f"take/{len(self.taken)}{task_suffix(task)}",
            TAKE_OP,
            task,
            [TOKEN],
            T=output_dtype(source, edge.port, self.graph.library)[0],
            key=mailbox_key(source.name, edge.port),
        )
        self.graph.node[-1].attr["shape"].shape.unknown_rank = True
        self.taken[edge] = name

    def _copy(self, number: int, task: str) -> None:
        """Copies a node that moves, or a constant or a handle that a moved node takes."""
        source = self._view.nodes[number]
        node = self.graph.node.add()
        node.CopyFrom(source)
        self._copies[number] = node
        node.attr.pop("_class", None)  # names of nodes that are not here
        del node.input[:]
        if number not in self._inside:  # a constant goes where it is used, a handle is there already
            node.device = cpu_of(task) if task_of(source.device) != task else source.device
            if source.op == HANDLE_OP and not source.attr["shared_name"].s:
                node.attr["shared_name"].s = source.name.encode()
            return
        for edge in self._view.data_inputs[number]:
            text = self.taken.get(edge)
            node.input.append(text if text is not None else tensor_name(self._view.nodes[edge.source].name, edge.port))
        for control in self._view.control_inputs[number]:
            if control in self._inside and control != self._cut.late.get(number):
                node.input.append("^" + self._view.nodes[control].name)

    def _node(self, name: str, op: str, task: str, inputs: list[str], **attrs: Any) -> str:
        return add_node(self.graph, name, op, task, inputs, **attrs)
