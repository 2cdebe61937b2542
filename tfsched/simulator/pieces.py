"""Cuts and merges parameters into the pieces that travel, and numbers them in the order that a method wants."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tfsched._rules import bundle_bytes, exchange_bytes, exchange_credit
from tfsched.errors import TfschedError
from tfsched.ordering import DagError, OrderingError, _checks, registry
from tfsched.ordering._checks import show
from tfsched.ordering.decision import Decision
from tfsched.ordering.servers import FLOWS, pushed_first

from .cluster import Cluster
from .cutting import MAX_PIECES, Parts, Piece, Planned, bundled, cut, split
from .errors import SimulatorError
from .joining import with_joins
from .method import _CREDIT_BYTES, Method
from .planned import planned_pieces
from .workload import Parameter, Workload

# What a preemptive decision is cut into where it says no size: what is on the wire cannot be overtaken.
PREEMPTION_BYTES = 1_000_000


class Scheduled(NamedTuple):
    """What a method comes to on a workload and a cluster.

    `pieces` are in the order in which they should go, over all servers. Workers that exchange them cut them further, to at
    most `exchange_bytes` (cc/collective/layout.h). `workload` has the work of joining groups that are all-reduced, too.
    """

    pieces: list[Piece]
    policy: str
    credit_bytes: int
    ordered: bool
    exchange_bytes: int
    workload: Workload


def servers_of(parameters: Sequence[Parameter], cluster: Cluster) -> list[int]:
    """The server that holds each parameter; 0 for all where there are none."""
    if cluster.all_reduces:
        return [0] * len(parameters)
    result = [-1] * len(parameters)
    free = []
    for i, parameter in enumerate(parameters):
        if parameter.server is None:
            free.append(i)
        else:
            result[i] = parameter.server % cluster.servers
    if cluster.placement == "round_robin":
        for position, i in enumerate(free):
            result[i] = position % cluster.servers
        return result
    loads = [(0, server) for server in range(cluster.servers)]
    for i in sorted(free, key=lambda i: (-parameters[i].size_bytes, i)):
        size, server = min(loads)
        result[i] = server
        loads[server] = (size + parameters[i].size_bytes, server)
    return result


def decide(workload: Workload, cluster: Cluster, method: Method, seed: int) -> Decision | None:
    """What the method's ordering says of the workload, keyed by `Workload.link_names`; None without an ordering.

    The ordering is told the bandwidth that one worker has if all of them use the servers at once, or that of an all-reduce,
    over the slowest link.
    """
    if method.ordering is None:
        return None
    ordering = registry.get(method.ordering)
    bandwidth_bps, startup_us = min(cluster.hosts()[2]), cluster.startup_us
    if cluster.architecture == "ps":
        bandwidth_bps = cluster.worker_bps()
    elif cluster.workers > 1:
        # A ring takes 2(N-1) steps, each of an N-th of the bytes; workers that exchange take two, or one if they are two.
        steps = 2 * (cluster.workers - 1)
        startup_us *= steps if cluster.architecture == "ring" else min(steps, 2) if cluster.workers > 2 else 1
        bandwidth_bps *= cluster.workers / (2 * (cluster.workers - 1))
    gradients = workload.phase == "train" and (method.view == "gradients" or cluster.all_reduces)
    view = workload.gradient_dag if gradients else workload.pull_dag
    dag = view(bandwidth_bps, startup_us)
    if not dag.recvs:
        return Decision({})
    crossed = not (cluster.barrier if method.barrier is None else method.barrier)
    if method.ordering in FLOWS and gradients and cluster.architecture == "ps" and crossed and cluster.updates == "piece":
        dag = pushed_first(dag)
    try:
        priorities = ordering(dag, None, seed=seed)
    except (OrderingError, DagError, TfschedError):
        raise
    except Exception as error:  # a user's own ordering may do anything
        message = " ".join(str(error).split())
        raise SimulatorError(f"ordering {method.ordering!r} failed with {type(error).__name__}: {message}") from error
    if not isinstance(priorities, Mapping):
        raise SimulatorError(f"ordering {method.ordering!r} returned {show(priorities)}; return a dict")
    return Decision.of(priorities)


def _priority(method: Method, name: str, value: object) -> float:
    if value == math.inf:  # no priority: last
        return math.inf
    what = f"the priority that ordering {method.ordering!r} gives to {show(name)}"
    return _checks.number(value, what, SimulatorError, signed=True)


def schedule(workload: Workload, cluster: Cluster, method: Method, seed: int) -> Scheduled:
    """The pieces of one step. Raises SimulatorError for a group of unknown parameters."""
    servers = servers_of(workload.parameters, cluster)
    decision = decide(workload, cluster, method, seed)
    partition = method.partition_bytes
    if partition is None:
        partition = decision.partition_bytes if decision is not None else 0
        if partition == 0 and decision is not None and decision.preemptive:
            partition = PREEMPTION_BYTES
    policy = method.policy or (decision.policy if decision is not None else None) or "tictac"
    credit = method.credit_bytes
    if credit is None:
        credit = decision.credit_bytes if decision is not None else 0
        if credit == 0 and policy == "tictac":
            credit = _CREDIT_BYTES
            if cluster.architecture == "allreduce" and not partition:  # the pieces below
                credit = exchange_credit(cluster.workers, exchange_bytes(cluster.workers, min(cluster.hosts()[2])))
        if credit == 0 and decision is not None and policy in ("bytescheduler", "prophet"):
            credit = 1  # one message at a time, as in `evaluate`: what has been handed over cannot be overtaken
    if cluster.all_reduces and policy == "tictac":
        policy = "bytescheduler"
    # Names of the decision are those of transfers, of the method those of parameters.
    names = {name: i for i, name in enumerate(workload.link_names)}
    priorities = [
        float(i) if decision is None else _priority(method, name, decision.get(name, math.inf))
        for i, name in enumerate(workload.link_names)
    ]
    most_bytes = partition or exchange_bytes(cluster.workers, min(cluster.hosts()[2]))
    if method.plan is not None:
        default_bytes = most_bytes if cluster.all_reduces else partition
        crossed = not (cluster.barrier if method.barrier is None else method.barrier)
        joined, ahead = cluster.all_reduces, crossed and not cluster.all_reduces
        planned = planned_pieces(workload, servers, method.plan, priorities, default_bytes, joined, ahead)
        most_bytes = max([most_bytes, *(piece.size_bytes for piece in planned)])
        planned.sort(key=lambda piece: piece.priority)
        return Scheduled(planned, policy, credit, True, most_bytes, _joining(workload, cluster, planned))
    plan = _messages(workload, method, decision, names, priorities)
    if cluster.architecture == "allreduce":
        if not any(explicit or len(parts) > 1 for parts, explicit, _ in plan):
            plan = bundled(plan, bundle_bytes(cluster.workers, partition))
        partition = 0
    pieces: list[Piece] = []
    for parts, place, hold_us in split(plan, workload, servers):
        pieces += (p._replace(hold_us=hold_us) for p in cut(parts, workload, servers, priorities, partition, place))
        if len(pieces) > MAX_PIECES:
            raise SimulatorError(f"a step would have more than {MAX_PIECES} pieces; give a larger partition_bytes")
    pieces.sort(key=lambda piece: piece.priority)
    ordered = decision is not None
    return Scheduled(pieces, policy, credit, ordered, most_bytes, _joining(workload, cluster, pieces))


def _joining(workload: Workload, cluster: Cluster, pieces: Sequence[Piece]) -> Workload:
    return with_joins(workload, pieces, cluster.join_us_per_mb) if cluster.all_reduces else workload


def _messages(
    workload: Workload, method: Method, decision: Decision | None, names: dict[str, int], priorities: list[float]
) -> list[Planned]:
    """The messages of a step, before they are cut."""
    parameters = workload.parameters
    # Pieces of one size may be asked for in the place of those that a preemptive plan comes to.
    explicit = decision is not None and not (decision.preemptive and method.partition_bytes is not None)
    if not method.groups and decision is not None and decision.messages and explicit:
        messages: list[Planned] = []
        planned = [0] * len(parameters)
        for message in decision.messages:
            parts = [(names[part.recv], part.size_bytes) for part in message.parts if part.recv in names]
            for i, size in parts:
                planned[i] += size
            if parts:
                messages.append((parts, True, message.not_before_us))
        # What the plan leaves out follows behind it.
        seen = {i for parts, _, _ in messages for i, _ in parts}
        rest = [i for i, p in enumerate(parameters) if planned[i] < p.size_bytes or i not in seen]
        rest.sort(key=lambda i: priorities[i])
        return messages + [([(i, max(parameters[i].size_bytes - planned[i], 0))], True, 0.0) for i in rest]
    by_parameter = {p.name: i for i, p in enumerate(parameters)}
    by_parameter.update(names)
    groups: Iterable[Iterable[str]] = method.groups or (decision.groups if decision is not None else ())
    member: dict[int, int] = {}
    for number, group in enumerate(groups):
        for name in group:
            if name not in by_parameter:
                raise SimulatorError(f"group {number} of method {method.name!r} has the unknown parameter {show(name)}")
            i = by_parameter[name]
            if i in member:
                raise SimulatorError(f"parameter {show(name)} is in two groups of method {method.name!r}; leave it in one")
            member[i] = number
    merged: dict[int, Parts] = {}
    result: list[Planned] = []
    for i, parameter in enumerate(parameters):
        if i not in member:
            result.append(([(i, parameter.size_bytes)], False, 0.0))
        elif member[i] in merged:
            merged[member[i]].append((i, parameter.size_bytes))
        else:
            merged[member[i]] = [(i, parameter.size_bytes)]
            result.append((merged[member[i]], False, 0.0))
    return result
