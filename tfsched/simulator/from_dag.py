"""Workloads from the DAG of one worker."""

from __future__ import annotations

from tfsched.ordering import Dag

from .errors import SimulatorError
from .workload import ComputeOp, Parameter, Workload

# Of a link without a bandwidth, to turn a transfer's time into bytes.
_ASSUMED_BPS = 1e9


def workload_of_dag(dag: Dag, phase: str | None = None) -> Workload:
    """The workload of a DAG.

    * Phase "forward" (the default where no transfer has inputs): every op on a link is a pull; one with inputs is asked for
      behind them.
    * Phase "train" (the default where one has): an op on a link with inputs is a gradient on its way to be applied. If
      something in the DAG reads it, the DAG is the unrolled step of training (`tfsched.ordering.layers.training_dag`), in
      which the transfer stands for push, update and pull together: what comes after transfers is the next step's forward
      pass. If nothing reads it, it is the push of the recv of the same name behind the first "/", as in recv/w and push/w.

    Bytes count, and the cluster's bandwidth; a transfer without bytes gets those that its link carries in its time. Where
    the DAG has several links, the transfers of each stay together on one server.
    """
    links = set(dag.recv_indices)
    if phase is None:
        phase = "train" if any(dag.input_indices[i] for i in links) else "forward"
    times_us = dag.times_us()
    pushes = [i for i in dag.recv_indices if phase == "train" and dag.input_indices[i]]
    for i in pushes:
        if any(j in links for j in dag.input_indices[i]):
            raise SimulatorError(f"transfer {dag.ops[i].name!r} waits for another transfer; a gradient comes from an op")
    # What the next step does: everything behind a push.
    later: set[int] = set()
    for i in dag.topological_order:
        if i not in links and any(j in later or j in pushes for j in dag.input_indices[i]):
            later.add(i)
    order = [i for i in dag.topological_order if i not in links]
    first, second = [i for i in order if i in later], [i for i in order if i not in later]
    ends = _ends(dag, first)
    ops = []
    for part in (first, second):
        inside = set(part)
        for i in part:
            inputs = tuple(dag.ops[j].name for j in dag.input_indices[i] if j in inside)
            if part is second and not inputs:
                inputs = ends  # back-propagation follows the forward pass
            ops.append(ComputeOp(dag.ops[i].name, times_us[i], inputs))
    streams = len({dag.ops[i].resource for i in order}) or 1
    return Workload(tuple(ops), tuple(_parameters(dag, pushes, times_us)), phase, streams)


def _ends(dag: Dag, part: list[int]) -> tuple[str, ...]:
    used = {j for i in part for j in dag.input_indices[i]}
    return tuple(dag.ops[i].name for i in part if i not in used)


def _parameters(dag: Dag, pushes: list[int], times_us: list[float]) -> list[Parameter]:
    links, pushed = set(dag.recv_indices), set(pushes)
    by_name = {_tail(dag.ops[i].name): i for i in dag.recv_indices if i not in pushed}
    push_of: dict[int, int] = {}
    alone: list[int] = []
    for i in pushes:
        pull = by_name.get(_tail(dag.ops[i].name))
        if pull is None or dag.consumers[i] or pull in push_of:
            alone.append(i)
        else:
            push_of[pull] = i

    def names(indices: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(dag.ops[j].name for j in indices if j not in links)

    channels: dict[str, int] = {}
    for i in dag.recv_indices:
        channels.setdefault(dag.ops[i].resource, len(channels))
    parameters = []
    paired = set(push_of.values())
    lonely = set(alone)
    for i in dag.recv_indices:
        if i in paired:
            continue
        size, own, readers = _bytes(dag, i, times_us[i]), dag.ops[i].name, names(dag.consumers[i])
        server = channels[dag.ops[i].resource] if len(channels) > 1 else None
        if i in lonely:
            parameters.append(Parameter(own, size, readers, names(dag.input_indices[i]), (), bool(readers), server))
            continue
        made_by = names(dag.input_indices[push_of[i]]) if i in push_of else ()
        for j in dag.input_indices[i]:
            if j in links:
                raise SimulatorError(f"transfer {own!r} waits for transfer {dag.ops[j].name!r}; put an op between them")
        parameters.append(Parameter(own, size, readers, made_by, names(dag.input_indices[i]), server=server))
    return parameters


def _tail(name: str) -> str:
    return name.partition("/")[2] or name


def _bytes(dag: Dag, i: int, time_us: float) -> int:
    op = dag.ops[i]
    if op.size_bytes is not None:
        size = op.size_bytes
    else:
        size = round(time_us * (dag.resources[op.resource].bandwidth_bps or _ASSUMED_BPS) / 8e6)
    if size >= 2**53:
        raise SimulatorError(f"transfer {op.name!r} has {size} bytes; give fewer than 2^53")
    return size
