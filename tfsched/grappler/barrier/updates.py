"""Decides which updates of a training step can be applied in the background, and what has to move with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from tensorflow.core.framework import types_pb2

from tfsched.graph_ops import EXCHANGE_OP, READ_ONLY_USES, is_update
from tfsched.grappler.reading.graph import Edge, GraphView
from tfsched.grappler.reading.op_types import op_def, output_dtype
from tfsched.grappler.reading.transfers import FORKS, JOINS, sees_reference
from tfsched.grappler.reading.variable_uses import Variable, VariableUses
from tfsched.grappler.reading.variables import is_handle

_CONSTANTS = {"Const", "HostConst"}
_USED_AFTER = "its value is used after the update"
_REDUCED = "its reduced gradient, or one that is exchanged with it, is used in the step"
_BRANCH = "its update is in a loop or a branch"
_SPARSE = "its gradient is sparse"
_ASSIGNS = {"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"}

# What no mailbox can hold: handles and boxed values belong to the step.
_NOT_VALUES = {types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT, types_pb2.DT_INVALID}


def is_dense_update(op: str) -> bool:
    """Whether the op writes a whole variable, and nothing else, from its inputs."""
    return op in _ASSIGNS or (op.startswith("ResourceApply") and not op.startswith("ResourceApplySparse"))


def nesting(view: GraphView) -> list[int]:
    """Per node: in how many loops and branches it is, with a loop counted twice; 0 if it runs once in every step.

    A branch is entered at Switch and left at Merge; a loop is entered at Enter and at the Switch behind its Merge, and left
    at Exit.
    """
    depths = [0] * len(view.nodes)
    for number in view.topological:
        op = view.nodes[number].op
        depth = max((depths[source] for source in view.inputs(number)), default=0)
        if op in ("Exit", "RefExit"):
            depth -= 2
        elif op in JOINS and not any("NextIteration" in view.nodes[source].op for source in view.inputs(number)):
            depth -= 1
        elif op in FORKS:
            depth += 1
        depths[number] = max(0, depth)
    return depths


@dataclasses.dataclass
class Cut:
    """Where a training step is cut.

    Attributes:
      updates: numbers of the update ops that move.
      moved: numbers of the ops that move with them: they run on the updates' tasks after a transfer, and only for updates.
      reduced: of those the numbers of the all-reduces.
      late: of those the numbers of the reads that see what an update has written -> the update.
      boundary: the tensors that the step hands over, in topological order.
      kept: variable -> why its update stays in the step. Variables that no crossing could help are not named.
    """

    updates: list[int]
    moved: list[int]
    reduced: list[int]
    late: dict[int, int]
    boundary: list[Edge]
    kept: dict[Variable, str]

    @property
    def inside(self) -> set[int]:
        """All that leaves the step."""
        return {*self.updates, *self.moved}


def find_cut(
    view: GraphView,
    needed: list[bool],
    uses: VariableUses,
    visible: Collection[int],
    capable: Collection[str] | None,
) -> Cut:
    """Finds the largest set of updates whose move cannot be seen from within the step.

    Args:
      view: the placed graph.
      needed: per node whether the step runs it.
      uses: its variables.
      visible: numbers of nodes whose outputs leave the step or come from outside (fetched, kept, fed).
      capable: the tasks that know tfsched's ops; None means all.
    """
    search = _Search(view, needed, uses, set(visible), capable)
    return search.run()


def trains(view: GraphView, needed: list[bool]) -> bool:
    """Whether the step changes a variable by what was computed on another task from variables."""
    written = [n for n, node in enumerate(view.nodes) if needed[n] and is_update(node.op)]
    if not written:
        return False
    search = _Search(view, needed, VariableUses(view, needed), set(), None)
    return any(search.is_trained(number) for number in written)


class _Search:
    def __init__(
        self, view: GraphView, needed: list[bool], uses: VariableUses, visible: set[int], capable: Collection[str] | None
    ):
        self.view = view
        self.needed = needed
        self.uses = uses
        self.visible = visible
        self.capable = capable
        self.kept: dict[Variable, str] = {}
        self.conditional = nesting(view)
        self.late: dict[int, int] = {}  # read of a variable behind its update -> the update
        self.exchanges = {number for number, node in enumerate(view.nodes) if node.op == EXCHANGE_OP}
        self.trained = self._after_a_read()

    def run(self) -> Cut:
        updates = [n for n in self.view.topological if self.needed[n] and is_dense_update(self.view.nodes[n].op)]
        updates = [n for n in updates if self.is_trained(n)]
        updates = [n for n in updates if not self._keep(n, self._fault(n))]
        self._name_others()
        # Each rule may take an update back, which may free or bind others: repeat until nothing changes.
        while True:
            moved = self._region(updates)
            remaining = [n for n in updates if self._crosses(n, moved)]
            if self.exchanges:  # on other clusters that a transfer comes last is rare enough to say nothing of its absence
                for number in updates:
                    self._keep(number, "" if number in remaining else _REDUCED)
            if remaining == updates:
                seen = {update for read, update in self.late.items() if read not in moved}
                remaining = [n for n in updates if not self._keep(n, _USED_AFTER if n in seen else "")]
            if remaining == updates:
                remaining = [n for n in updates if not self._keep(n, self._boundary_fault(n, updates, moved))]
            if remaining == updates:
                remaining = self._without_awaited(updates, moved)
            if remaining == updates:
                break
            updates = remaining
        boundary = self._boundary(updates, moved)
        late = {read: update for read, update in self.late.items() if read in moved}
        order = [n for n in self.view.topological if n in moved]
        return Cut(updates, order, [n for n in order if n in self.exchanges], late, boundary, self.kept)

    def _after_a_read(self) -> list[bool]:
        """Per node: whether it depends on a collective or a variable of another task, so that it belongs to training."""
        view = self.view
        # Sparse gradients are gathered, not reduced.
        gathered = {n for n, node in enumerate(view.nodes) if self.exchanges and node.op.startswith("CollectiveGather")}
        reads = [number in self.uses.of for number in range(len(view.nodes))]
        crossed = [False] * len(view.nodes)
        for number in view.topological:
            for edge in view.data_inputs[number]:
                if edge.source >= 0:
                    reads[number] = reads[number] or reads[edge.source]
                    other = view.tasks[edge.source] != view.tasks[number]
                    crossed[number] = crossed[number] or crossed[edge.source] or (other and reads[edge.source])
            behind = any(crossed[update] for update in self._updates_before(number))
            crossed[number] = crossed[number] or behind or number in self.exchanges or number in gathered
        return crossed

    def _updates_before(self, number: int) -> list[int]:
        """If the node reads a variable: the updates of the variable that it certainly follows, by control edges alone."""
        view, uses = self.view, self.uses.of
        if number not in uses or view.nodes[number].op not in READ_ONLY_USES:
            return []
        found, seen, stack = [], {number}, [number]
        while stack:
            for source in view.control_inputs[stack.pop()]:
                if source in seen:
                    continue
                seen.add(source)
                if is_dense_update(view.nodes[source].op):
                    if set(uses[number]).intersection(uses.get(source, ())):
                        found.append(source)
                elif view.nodes[source].op == "NoOp":
                    stack.append(source)
        return found

    def is_trained(self, number: int) -> bool:
        """Whether the update waits for another task's computation: others need no help and are never spoken of."""
        return any(
            edge.source >= 0 and self.trained[edge.source] and edge.source not in self.uses.handles
            for edge in self.view.data_inputs[number]
        )

    def _keep(self, number: int, reason: str) -> bool:
        if reason:
            for variable in self.uses.of.get(number, ())[:1]:  # an optimizer's slots come after the variable
                self.kept.setdefault(variable, reason)
        return bool(reason)

    def _name_others(self) -> None:
        """Says of the writes that are no plain updates why they stay."""
        for number, node in enumerate(self.view.nodes):
            if not self.needed[number] or is_dense_update(node.op) or node.op in READ_ONLY_USES:
                continue
            if number in self.uses.of and self.is_trained(number):
                sparse = "Sparse" in node.op or "Scatter" in node.op
                branch = node.op in FORKS  # which takes its handle there
                if branch and all(self.view.nodes[c].op.startswith("Collective") for c in self.view.consumers[number]):
                    continue  # an ordering token of the strategy
                self._keep(number, _BRANCH if branch else _SPARSE if sparse else f"it is updated by {node.op}")
            elif node.op.startswith(("Apply", "SparseApply")) and self.view.data_inputs[number][:1]:
                source = self.view.data_inputs[number][0].source
                if source >= 0:
                    name = self.view.nodes[source].name
                    self.kept[Variable(self.view.tasks[number], name)] = (
                        "it is a reference variable; use_resource=True helps"
                    )

    def _fault(self, number: int) -> str:
        """Why the update can never move; "" if nothing speaks against it so far."""
        view, node = self.view, self.view.nodes[number]
        variables = self.uses.of.get(number, [])
        handles = [edge.source for edge in view.data_inputs[number] if self._dtype(edge) == types_pb2.DT_RESOURCE]
        if not variables or len(handles) != len(variables):
            return "its handle is not known before the step runs"
        if any(variable.task != view.tasks[number] for variable in variables):
            return "its update runs on another task"
        if self.conditional[number]:
            return _BRANCH
        if "CPU" not in node.device.rpartition("/")[2].upper():
            return "it is not in host memory"
        if self.capable is not None and view.tasks[number] not in self.capable:
            return "it is on a task without tfsched"
        for variable in variables:
            writers = [n for n in self.uses.by[variable] if view.nodes[n].op not in READ_ONLY_USES]
            if len(writers) > 1:
                return "the step writes it more than once"
        late = self._used_after(number, set(variables))
        if not all(self._may_follow(read) for read in late):
            return _USED_AFTER
        self.late.update(dict.fromkeys(late, number))
        return ""

    def _used_after(self, number: int, variables: set[Variable]) -> list[int]:
        """What runs after the update and uses one of its variables."""
        found, seen, stack = [], {number}, [number]
        while stack:
            for consumer in self.view.consumers[stack.pop()]:
                if consumer in seen or not self.needed[consumer]:
                    continue
                if variables.intersection(self.uses.of.get(consumer, ())):
                    found.append(consumer)
                seen.add(consumer)
                stack.append(consumer)
        return found

    def _may_follow(self, number: int) -> bool:
        """Whether the node is a read that can move behind its variable's update, if all that it is read for moves too."""
        view = self.view
        if view.nodes[number].op != "ReadVariableOp" or number in self.visible or self.conditional[number]:
            return False
        return all(variable.task == view.tasks[number] for variable in self.uses.of[number])

    def _region(self, updates: list[int]) -> set[int]:
        """What moves with the updates."""
        view = self.view
        tasks = {view.tasks[number] for number in updates}
        inside = set(updates)
        reads = {read for read, update in self.late.items() if update in inside}
        for number in reversed(view.topological):
            if not self.needed[number] or number in inside or view.tasks[number] not in tasks:
                continue
            consumers = [c for c in view.consumers[number] if self.needed[c]]
            if number in reads or number in self.exchanges:  # a NoOp will follow the hand-over instead
                consumers = [c for c in consumers if view.nodes[c].op != "NoOp"]
            if consumers and all(c in inside for c in consumers) and (number in reads or self._movable(number)):
                inside.add(number)
        late: set[int] = set()  # of these only what waits for a transfer: the rest can be done in the step
        for number in view.topological:
            if number in inside and any(
                number in reads
                or number in self.exchanges
                or edge.source in late
                or (edge.source >= 0 and view.tasks[edge.source] != view.tasks[number])
                for edge in view.data_inputs[number]
                if edge.source >= 0 and view.nodes[edge.source].op not in _CONSTANTS
            ):
                late.add(number)
        return late - set(updates)

    def _movable(self, number: int) -> bool:
        node = self.view.nodes[number]
        if number in self.visible or self.conditional[number] > 0 or number in self.uses.of:
            return False
        if node.op in _CONSTANTS or is_handle(node):
            return False
        if number in self.exchanges:
            return True
        if node.op in FORKS or node.op in JOINS or node.op in ("NextIteration", "RefNextIteration", "LoopCond"):
            return False
        definition = op_def(node, self.view.graph.library)
        return definition is not None and not definition.is_stateful

    def _dtype(self, edge: Edge) -> int:
        if edge.source < 0:
            return int(types_pb2.DT_INVALID)
        return output_dtype(self.view.nodes[edge.source], edge.port, self.view.graph.library)[0]

    def _crosses(self, number: int, moved: set[int]) -> bool:
        return any(
            edge.source in moved or self.view.tasks[edge.source] != self.view.tasks[number]
            for edge in self.view.data_inputs[number]
            if edge.source >= 0 and self.view.nodes[edge.source].op not in _CONSTANTS
        )

    def _inputs_of_update(self, number: int, moved: set[int]) -> tuple[set[int], list[Edge]]:
        """The moved ops that lead to the update, and the tensors that they and it take from the step."""
        mine, stack, edges = set(), [number], []
        while stack:
            for edge in self.view.data_inputs[stack.pop()]:
                if edge.source in moved:
                    if edge.source not in mine:
                        mine.add(edge.source)
                        stack.append(edge.source)
                elif edge.source not in self.uses.handles:
                    edges.append(edge)
        return mine, edges

    def _boundary_fault(self, number: int, updates: list[int], moved: set[int]) -> str:
        inside = set(updates) | moved
        for edge in self._inputs_of_update(number, moved)[1]:
            if edge.source < 0 or self._dtype(edge) in _NOT_VALUES:
                return "its update takes a handle"
            node = self.view.nodes[edge.source]
            if node.op in _CONSTANTS:
                continue
            if self.conditional[edge.source]:
                return _BRANCH
            if output_dtype(node, edge.port, self.view.graph.library)[1] or sees_reference(self.view, edge.source):
                return "its update sees a reference variable"
            if self.capable is not None and self.view.tasks[edge.source] not in self.capable:
                return "its gradient is on a task without tfsched"
        for source in self.view.control_inputs[number]:
            if self.conditional[source] and source not in inside:
                return _BRANCH
        return ""

    def _without_awaited(self, updates: list[int], moved: set[int]) -> list[int]:
        """Takes back the updates that others wait for through the step.

        What follows a moved update in the step follows the hand-over of everything, so it must not lead to the hand-over.
        """
        inside = set(updates) | moved
        awaited: set[int] = set()
        stack = [edge.source for edge in self._boundary(updates, moved)]
        stack += [source for number in inside for source in self.view.control_inputs[number] if source not in inside]
        seen = set(stack)
        while stack:
            for source in self.view.inputs(stack.pop()):
                if source in inside:
                    awaited.add(self.late.get(source, source))  # a read that moves is behind the hand-over too
                elif source not in seen:
                    seen.add(source)
                    stack.append(source)
        reduced = awaited & self.exchanges
        awaited.update(n for n in updates if reduced and reduced & self._inputs_of_update(n, moved)[0])
        for number in updates:
            if number in awaited:
                self._keep(number, "others wait for its update")
        return [number for number in updates if number not in awaited]

    def _boundary(self, updates: list[int], moved: set[int]) -> list[Edge]:
        inside = set(updates) | moved
        found: dict[Edge, None] = {}
        for number in self.view.topological:
            if number not in inside:
                continue
            for edge in self.view.data_inputs[number]:
                if edge.source in inside or edge.source in self.uses.handles or edge.source < 0:
                    continue
                if self.view.nodes[edge.source].op not in _CONSTANTS:
                    found[edge] = None
        return list(found)
