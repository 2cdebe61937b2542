"""Workloads from traced steps (`tfsched.StepTrace`, read by its attributes: this part knows no TensorFlow)."""

from __future__ import annotations

import dataclasses
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfsched.graph_ops import HANDLE_OP, PASSING_ON, REFERENCES, WHOLE_READS, is_update
from tfsched.ordering import Dag
from tfsched.ordering._checks import show

from .errors import SimulatorError
from .from_dag import workload_of_dag
from .workload import ComputeOp, Parameter, Workload

TIMES = ("median", "least")


def workload_of_trace(trace: Any, phase: str | None = None, worker: str | None = None, times: str = "median") -> Workload:
    """The workload of `worker`, with the median (or the least) time of each op over the traced steps.

    Orderings use the least (TicTac's time oracle), which is what an op takes undisturbed. A real step's ops are disturbed,
    so its time is predicted better by the median. As many ops are computed at once as were when it was traced,
    and where a method has no order parameters are asked for as they were if that was on stock TensorFlow.

    Worker None: of the tasks that are no parameter server, the one that computes most.

    Transfers to the worker are pulls. In phase "train", the default where the worker sends something, its transfers to
    others are pushes; one that leads to the update of a variable that the worker pulls is that parameter's gradient.
    Parameters stay on the servers they were traced on, modulo the simulated number of servers.

    A trace of all-reduces gives two chains: the forward pass from one first use of a variable to the next, and the backward
    pass from one gradient to the next, as the one worker was seen to do it; `worker` and `times` have no say there.

    Raises SimulatorError for a trace without transfers to the worker.
    """
    if times not in TIMES:
        raise SimulatorError(f"the times are {show(times)}; give one of {', '.join(TIMES)}")
    receivers = list(trace.receivers())
    if getattr(trace, "exchanges", None):
        return _workload_of_exchanges(trace)
    if not receivers:
        raise SimulatorError("the trace has no transfers between tasks; trace a step of a graph that spans several tasks")
    if worker is None:
        worker = next((task for task in receivers if "/job:ps/" not in f"{task}/"), receivers[0])
    if worker not in receivers:
        raise SimulatorError(f"the trace has no transfer to {worker}; the receivers are {', '.join(receivers)}")
    base = workload_of_dag(_without_signals(trace.dag(worker), worker), "forward")
    sent = [name for name, link in trace.links.items() if link.partition(">")[0] == worker]
    if phase is None:
        phase = "train" if sent else "forward"
    servers = {
        task: i for i, task in enumerate(sorted({_server(link, worker) for link in trace.links.values()}, key=_natural))
    }

    def server_of(name: str) -> int | None:
        return servers.get(_server(trace.links.get(name, ""), worker))

    parameters = {p.name: dataclasses.replace(p, server=server_of(p.name)) for p in base.parameters}
    if phase == "train":
        known = {op.name for op in base.ops}
        nodes = _Nodes(trace.nodes)
        pulled = {nodes.variable_behind(_source(name)): name for name in parameters}
        pulled.pop(None, None)
        for name in sent:
            if _source(name) not in known:
                continue
            of = next((pulled[v] for v in nodes.updated_by(name) if v in pulled), None)
            if of is not None and not parameters[of].made_by:
                parameters[of] = dataclasses.replace(parameters[of], made_by=(_source(name),), pushed_as=name)
            else:
                size = int(trace.sizes.get(name, 0))
                parameters[name] = Parameter(name, size, (), (_source(name),), pulled=False, server=server_of(name))
    ops = base.ops if times == "least" else _median_times(base.ops, trace.steps)
    streams = _streams(trace.steps, {op.name for op in ops})
    return Workload(ops, tuple(parameters.values()), phase, streams, tuple(_orders(trace.steps, list(parameters))))


def update_us_per_mb_of_trace(trace: Any) -> float:
    """How long servers take to apply an update of 10^6 bytes, in µs; 0 for a trace without updates of what is pulled.

    Of all variables together: each update's median over the traced steps. What reads the new value is not counted.
    """
    nodes = _Nodes(trace.nodes)
    sizes: dict[str, float] = {}
    for name in trace.links:
        variable = nodes.variable_behind(_source(name))
        if variable is not None:
            sizes[variable] = max(sizes.get(variable, 0.0), float(trace.sizes.get(name, 0)))
    total_us = total_bytes = 0.0
    for name, op in nodes.op.items():
        if not is_update(op) or not nodes.inputs[name]:
            continue
        size = sizes.get(nodes.variable_behind(nodes.inputs[name][0][0]) or "", 0.0)
        found = [float(step.ops[name][1]) for step in trace.steps if name in step.ops]
        if size > 0 and found:
            total_us += statistics.median(found)
            total_bytes += size
    return total_us / total_bytes * 1e6 if total_bytes > 0 else 0.0


def _workload_of_exchanges(trace: Any) -> Workload:
    dag = trace.dag(trace.receivers()[0])  # its recvs and two chains of ops: ready/<name>, begin and use/<name>
    links = {dag.ops[i].name for i in dag.recv_indices}
    made = {name: op.name for op in dag.ops if op.name.startswith("ready/") for name in (op.name.partition("/")[2],)}
    ops: list[ComputeOp] = []
    read: dict[str, tuple[str, ...]] = {}
    after: tuple[str, ...] = ()
    # Forward first: the DAG begins with what is left of back-propagation.
    for forward in (True, False):
        for op in dag.ops:
            if op.name in links or op.name.startswith("ready/") is forward:
                continue
            ops.append(ComputeOp(op.name, op.time_us or 0.0, after))
            after = (op.name,)
            for name in op.inputs:
                if name in links:
                    read[name] = (op.name,)
    parameters = tuple(
        Parameter(op.name, op.size_bytes or 0, read.get(op.name, ()), (made[op.name],)) for op in dag.ops if op.name in links
    )
    return Workload(tuple(ops), parameters, "train")


def _orders(steps: Sequence[Any], names: list[str]) -> Iterator[tuple[int, ...]]:
    """Per step the parameters in the order in which the worker asked for them; others follow behind.

    None of a trace that was ordered: where tfsched has put ops in front of the transfers the order is another one. Stock
    TensorFlow's hardly differs from one step to the next, and what is read together is asked for together, so it is far from
    random.
    """
    for step in steps:
        if any(row.get("rank", -1) >= 0 for row in step.sends):
            continue
        asked = {name: requested_us for name, (requested_us, _) in step.transfers.items()}
        yield tuple(sorted(range(len(names)), key=lambda i: asked.get(names[i], math.inf)))


def _streams(steps: Sequence[Any], names: set[str]) -> int:
    """How many ops the worker ran at once for at least a hundredth of its busy time, in the median step.

    It may be more than its threads: a thread that receives a tensor runs what becomes ready with it.
    """
    found = []
    for step in steps:
        changes = []
        for name, (start_us, duration_us) in step.ops.items():
            if name in names and duration_us > 0:
                changes += [(start_us, 1), (start_us + duration_us, -1)]
        busy_us: dict[int, float] = {}
        running, since_us = 0, 0.0
        for at_us, change in sorted(changes):
            if running > 0:
                busy_us[running] = busy_us.get(running, 0.0) + at_us - since_us
            running, since_us = running + change, at_us
        total_us = sum(busy_us.values())
        found.append(max((k for k, us in busy_us.items() if us >= 0.01 * total_us), default=1))
    return max(int(statistics.median(found)), 1) if found else 1


def _median_times(ops: Sequence[ComputeOp], steps: Sequence[Any]) -> tuple[ComputeOp, ...]:
    """Each op's median, scaled so that their sum is the median of the steps' sums: disturbances come in bursts."""
    medians = []
    for op in ops:
        found = [float(step.ops[op.name][1]) for step in steps if op.name in step.ops]
        medians.append(statistics.median(found) if found else op.time_us)
    sums = [math.fsum(float(step.ops[op.name][1]) for op in ops if op.name in step.ops) for step in steps]
    total_us = math.fsum(medians)
    scale = statistics.median(sums) / total_us if sums and total_us > 0 else 1.0
    return tuple(dataclasses.replace(op, time_us=us * scale) for op, us in zip(ops, medians, strict=True))


def _without_signals(dag: Dag, worker: str) -> Dag:
    """The DAG without what tells the worker that something is done elsewhere, such as the updates at the end of a step.

    Those are transfers without bytes that wait for ops of other tasks; then the ops that lead to nothing else go.
    """
    links = set(dag.recv_indices)
    gone: set[int] = set()
    for i in reversed(dag.topological_order):
        op = dag.ops[i]
        if i in links:
            useless = bool(op.inputs) and not op.size_bytes
        else:
            useless = op.resource != f"{worker}/compute" and all(j in gone for j in dag.consumers[i])
        if useless:
            gone.add(i)
    if len(gone) == len(dag.ops):
        return dag
    names = {dag.ops[i].name for i in gone}
    kept = [op._replace(inputs=tuple(n for n in op.inputs if n not in names)) for op in dag.ops if op.name not in names]
    return Dag(dag.resources.values(), kept)


def _source(transfer: str) -> str:
    return transfer.partition("@")[0].rpartition(":")[0]


def _server(link: str, worker: str) -> str:
    sender, _, receiver = link.partition(">")
    return receiver if sender == worker else sender


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", text)]


class _Nodes:
    """The traced graph, to find which variable a tensor is read from or updates."""

    def __init__(self, nodes: list[tuple[str, str, str, list[str]]]) -> None:
        self.op: Mapping[str, str] = {name: op for name, op, _, _ in nodes}
        self.device = {name: device for name, _, device, _ in nodes}
        self.inputs = {name: [_tensor(one) for one in inputs if not one.startswith("^")] for name, _, _, inputs in nodes}
        self.consumers: dict[str, list[tuple[int, str]]] = {}
        for name, tensors in self.inputs.items():
            for node, port in tensors:
                self.consumers.setdefault(node, []).append((port, name))

    def variable_behind(self, name: str) -> str | None:
        """The variable whose value or handle the node puts out."""
        for _ in self.op:  # at most as many hops as there are nodes
            op = self.op.get(name)
            if op == HANDLE_OP or op in REFERENCES:
                return name
            if (op not in PASSING_ON and op not in WHOLE_READS) or not self.inputs[name]:
                return None
            name = self.inputs[name][0][0]
        return None

    def updated_by(self, transfer: str) -> list[str]:
        """The variables whose updates on the receiver the transfer leads to, without leaving that task."""
        tensor, _, receiver = transfer.partition("@")
        source, sent_port = _tensor(tensor)
        found: list[str] = []
        seen: set[str] = set()
        queue = [name for port, name in self.consumers.get(source, ()) if port == sent_port]
        while queue:
            name = queue.pop()
            if name in seen or not f"{self.device[name]}/".startswith(f"{receiver}/"):
                continue
            seen.add(name)
            if is_update(self.op[name]) and self.inputs[name]:
                variable = self.variable_behind(self.inputs[name][0][0])
                if variable is not None:
                    found.append(variable)
            else:
                queue += [consumer for _, consumer in self.consumers.get(name, ())]
        return found


def _tensor(text: str) -> tuple[str, int]:
    """Node and port of "node:port" or "node"."""
    node, _, port = text.rpartition(":")
    return (node, int(port)) if node and port.isdigit() else (text, 0)
