"""Who touches which resource variable in a placed graph."""

from __future__ import annotations

import dataclasses

from tfsched.grappler.graph import GraphView

HANDLE_OP = "VarHandleOp"

# What looks at a variable and leaves it as it is.
READS = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "TfschedRead"}

# What does not look at the value at all.
HARMLESS = {"VarIsInitializedOp", "VariableShape"}


@dataclasses.dataclass(frozen=True)
class Variable:
    """A resource variable: the task that holds it, and its name there. Several handle nodes may mean the same one."""

    task: str
    name: str

    @property
    def key(self) -> str:
        return f"{self.task}|{self.name}"


class Touches:
    """The consumers of each variable's handle.

    Attributes:
      handles: number of a VarHandleOp -> its variable.
      of: number of a consumer -> the variables whose handles it takes, in the order of its inputs.
      by: variable -> numbers of its consumers.
    """

    def __init__(self, view: GraphView, needed: list[bool]):
        self.handles: dict[int, Variable] = {}
        self.of: dict[int, list[Variable]] = {}
        self.by: dict[Variable, list[int]] = {}
        for number, node in enumerate(view.nodes):
            if node.op == HANDLE_OP:
                container = node.attr["container"].s.decode()
                name = node.attr["shared_name"].s.decode() or node.name
                self.handles[number] = Variable(view.tasks[number], f"{container}/{name}" if container else name)
        for number in view.topological:
            if not needed[number] or view.nodes[number].op in HARMLESS:
                continue
            for edge in view.data_inputs[number]:
                variable = self.handles.get(edge.source)
                if variable is not None:
                    self.of.setdefault(number, []).append(variable)
                    self.by.setdefault(variable, []).append(number)
