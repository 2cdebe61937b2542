"""What one worker does in one step: ops it computes, and parameters it pulls and whose gradients it pushes."""

from __future__ import annotations

import dataclasses
from functools import cached_property

from tfsched.ordering import Dag, Op, Resource, _checks
from tfsched.ordering._checks import show
from tfsched.ordering.layers import LayerTable

from .errors import SimulatorError

PHASES = ("forward", "train")
COMPUTE = "w0/compute"
LINK = "net"
_MAX_STEP_US = 1e13  # four months


@dataclasses.dataclass(frozen=True)
class ComputeOp:
    """An op of a worker: its time in µs on a worker of speed 1, and the ops before it."""

    name: str
    time_us: float
    inputs: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A tensor that is exchanged.

    Attributes:
      name: unique among parameters.
      size_bytes: of the value, and of its gradient.
      read_by: ops that need the value.
      made_by: ops that make the gradient; it is pushed when all have run. Empty: it is not pushed.
      asked_after: ops after which the value is asked for; empty: when the step begins.
      pulled: whether the worker pulls it at all.
      server: the parameter server that holds it; None leaves that to the cluster's placement.
      pushed_as: what plans call the gradient; "": as the parameter.
    """

    name: str
    size_bytes: int
    read_by: tuple[str, ...] = ()
    made_by: tuple[str, ...] = ()
    asked_after: tuple[str, ...] = ()
    pulled: bool = True
    server: int | None = None
    pushed_as: str = ""


@dataclasses.dataclass(frozen=True)
class Workload:
    """One worker's step. Among the ops that could run a worker takes the first of `ops`.

    Attributes:
      ops: in a topological order.
      parameters: in the order in which they are asked for where nothing says another.
      phase: "forward" or "train".
      streams: ops that run at once, where the source of the workload knows.
      request_orders: orders of the parameters (their positions) in which workers have asked for them. Where a method has no
        order of its own each step and worker draws one of these; empty: any order is as likely as any other.

    Raises SimulatorError for names that are given twice or unknown, an op before its input, and bad numbers.
    """

    ops: tuple[ComputeOp, ...]
    parameters: tuple[Parameter, ...]
    phase: str = "forward"
    streams: int = 1
    request_orders: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.phase not in PHASES:
            raise SimulatorError(f"the phase is {show(self.phase)}; give one of {', '.join(PHASES)}")
        if not self.ops and not self.parameters:
            raise SimulatorError("the workload has no ops and no parameters; give at least one")
        seen: set[str] = set()
        total_us = 0.0
        for op in self.ops:
            total_us += _checks.number(op.time_us, f"the time_us of op {show(op.name)}", SimulatorError)
            for name in op.inputs:
                if name not in seen:
                    raise SimulatorError(f"op {show(op.name)} has the input {show(name)}, which is no op before it")
            if op.name in seen:
                raise SimulatorError(f"op {show(op.name)} is given twice; rename one of them")
            seen.add(op.name)
        if total_us > _MAX_STEP_US:
            raise SimulatorError(f"the ops take {total_us:g} µs in all; give times of at most {_MAX_STEP_US:g} µs")
        names: set[str] = set()
        for parameter in self.parameters:
            if parameter.name in names:
                raise SimulatorError(f"parameter {show(parameter.name)} is given twice; rename one of them")
            names.add(parameter.name)
            size = parameter.size_bytes
            if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 2**53:
                raise SimulatorError(f"parameter {parameter.name!r} has {show(size)} bytes; give a whole number below 2^53")
            for name in (*parameter.read_by, *parameter.made_by, *parameter.asked_after):
                if name not in seen:
                    raise SimulatorError(f"parameter {show(parameter.name)} names the unknown op {show(name)}")
        for order in self.request_orders:
            if sorted(order) != list(range(len(self.parameters))):
                raise SimulatorError(f"the request order {show(order)} does not have each of the parameters once")

    @property
    def compute_us(self) -> float:
        """Time of all ops, one after another on a worker of speed 1."""
        return sum(op.time_us for op in self.ops)

    @cached_property
    def index(self) -> dict[str, int]:
        """Op name -> position."""
        return {op.name: i for i, op in enumerate(self.ops)}

    @cached_property
    def first_gradient_op(self) -> int:
        """Position of the first op that makes a gradient; 0 if none does."""
        return min((self.index[op] for p in self.parameters for op in p.made_by), default=0)

    @cached_property
    def link_names(self) -> tuple[str, ...]:
        """Per parameter the name of its transfer in `pull_dag` and `gradient_dag`: its own, where no op has that."""
        return tuple(f"recv/{p.name}" if p.name in self.index else p.name for p in self.parameters)

    @classmethod
    def from_layers(cls, table: LayerTable, phase: str = "train") -> Workload:
        """A chain of layers: forward/<layer> first to last and, in phase "train", backward/<layer> last to first."""
        ops: list[ComputeOp] = []
        after: tuple[str, ...] = ()
        for row in table:
            ops.append(ComputeOp(f"forward/{row.name}", row.forward_us, after))
            after = (f"forward/{row.name}",)
        if phase == "train":
            for row in reversed(table.rows):
                ops.append(ComputeOp(f"backward/{row.name}", row.backward_us, after))
                after = (f"backward/{row.name}",)
        parameters = tuple(
            Parameter(
                row.name,
                row.parameter_bytes,
                (f"forward/{row.name}",),
                (f"backward/{row.name}",) if phase == "train" else (),
            )
            for row in table
            if row.parameter_bytes > 0
        )
        return cls(tuple(ops), parameters, phase)

    def pull_dag(self, bandwidth_bps: float, startup_us: float = 0.0) -> Dag:
        """One step as orderings of pulls see it: a recv for each pulled parameter, and all ops."""
        reads: dict[str, list[str]] = {}
        ops: list[Op] = []
        for name, parameter in zip(self.link_names, self.parameters, strict=True):
            if parameter.pulled:
                ops.append(Op(name, LINK, parameter.asked_after, None, parameter.size_bytes))
                for op in parameter.read_by:
                    reads.setdefault(op, []).append(name)
        ops += [Op(op.name, COMPUTE, (*reads.get(op.name, ()), *op.inputs), op.time_us) for op in self.ops]
        return Dag(_resources(bandwidth_bps, startup_us), ops)

    def gradient_dag(self, bandwidth_bps: float, startup_us: float = 0.0) -> Dag:
        """The step that training repeats (`tfsched.ordering.layers.training_dag`), from where the first gradient is made.

        A parameter's transfer is one op behind what makes its gradient and in front of what reads it in the next step. Reads
        by ops after the first gradient are left out, for the value is there since the forward pass.
        """
        first = self.first_gradient_op
        late = {op.name for op in self.ops[first:]}
        reads: dict[str, list[str]] = {}
        ops = [
            Op(op.name, COMPUTE, tuple(name for name in op.inputs if name in late), op.time_us) for op in self.ops[first:]
        ]
        used = {name for op in ops for name in op.inputs}
        ends = tuple(op.name for op in ops if op.name not in used)
        for name, parameter in zip(self.link_names, self.parameters, strict=True):
            made_late = tuple(op for op in parameter.made_by if op in late)
            if made_late:
                ops.append(Op(name, LINK, made_late, None, parameter.size_bytes))
                for reader in parameter.read_by:
                    if reader not in late:
                        reads.setdefault(reader, []).append(name)
        for op in self.ops[:first]:
            inputs = (*reads.get(op.name, ()), *(op.inputs or ends))
            ops.append(Op(op.name, COMPUTE, inputs, op.time_us))
        return Dag(_resources(bandwidth_bps, startup_us), ops)


def _resources(bandwidth_bps: float, startup_us: float) -> list[Resource]:
    return [Resource(COMPUTE, "compute"), Resource(LINK, "link", bandwidth_bps, startup_us)]
