"""Turns a placed graph into the DAG of one receiver, for the orderings."""

from __future__ import annotations

import heapq

from tfsched.grappler.reading.graph import GraphView
from tfsched.grappler.reading.transfers import Transfer
from tfsched.ordering.dag import Dag, Op, Resource

# A placed graph knows neither sizes nor times. Orderings that need times get them from a trace.
_UNKNOWN_US = 1.0


def dag_of_placed_graph(view: GraphView, needed: list[bool], transfers: list[Transfer], receiver: str) -> Dag:
    """The worker's partition of section 2.1 of the TicTac paper: its ops, and a recv in place of each transfer to it.

    Ops of other tasks take part, in no time, where they lead from this task back to it: a recv that depends on them must not
    look like a leaf.

    What joins the shards of a variable counts as a part of the op that uses the variable: it waits for whatever that op
    waits for. By itself it would be a computation that two recvs activate. TIO, which counts the recvs that a computation
    needs, would then put the shards of the last layer in front of whole variables of the second one.

    ::

        before   x ─────────────► MatMul        after   x ─┬──────────────────► MatMul
                 w/part_0 ─┐        ▲                      └────────┐             ▲
                 w/part_1 ─┴► join ─┘                   w/part_0 ─┐ ▼             │
                                                        w/part_1 ─┴► join ────────┘

    Args:
      view: the placed graph.
      needed: per node whether the step runs it.
      transfers: from ``find_transfers``.
      receiver: whose partition.

    Returns:
      A Dag with one compute resource for each task and one link for each sender; recvs are named as ``Transfer.name``.
    """
    included = _included(view, needed, receiver)
    recv_of: dict[tuple[int, int], str] = {}
    resources = {f"{receiver}/compute": Resource(f"{receiver}/compute", "compute")}
    ops: list[Op] = []
    emitted: set[str] = set()
    arrivals: dict[int, list[str]] = {}  # node -> the recvs among its inputs

    for transfer in transfers:
        if transfer.receiver != receiver:
            continue
        name = transfer.name(view)
        for number, position in transfer.consumers:
            recv_of[(number, position)] = name
            arrivals.setdefault(number, []).append(name)

    def input_names(number: int) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for position, edge in enumerate(view.data_inputs[number]):
            recv = recv_of.get((number, position))
            if recv is not None:
                names[recv] = None
            elif edge.source >= 0 and view.nodes[edge.source].name in emitted:
                names[view.nodes[edge.source].name] = None
        for source in view.control_inputs[number]:
            if view.nodes[source].name in emitted:
                names[view.nodes[source].name] = None
        return tuple(names)

    by_source: dict[str, Transfer] = {}
    for transfer in transfers:
        if transfer.receiver == receiver:
            by_source.setdefault(transfer.name(view), transfer)

    for number in view.topological:
        if not included[number]:
            continue
        for recv in arrivals.get(number, ()):
            if recv in emitted:
                continue
            transfer = by_source[recv]
            link = f"{transfer.sender}>{receiver}"
            resources.setdefault(link, Resource(link, "link"))
            source = view.nodes[transfer.source].name
            ops.append(Op(recv, link, (source,) if source in emitted else (), time_us=_UNKNOWN_US))
            emitted.add(recv)
        compute = f"{view.tasks[number]}/compute"
        resources.setdefault(compute, Resource(compute, "compute"))
        node = view.nodes[number]
        ops.append(Op(node.name, compute, input_names(number)))
        emitted.add(node.name)
    return Dag(resources.values(), _late_joins(view, ops, included, recv_of))


def _included(view: GraphView, needed: list[bool], receiver: str) -> list[bool]:
    """The receiver's nodes, and those of others on a path from one of them to another."""
    own = [needed[number] and task == receiver for number, task in enumerate(view.tasks)]
    after = [False] * len(own)
    for number in view.topological:
        after[number] = own[number] or any(after[source] for source in view.inputs(number))
    before = [False] * len(own)
    for number in reversed(view.topological):
        before[number] = own[number] or any(before[consumer] for consumer in view.consumers[number])
    return [needed[number] and after[number] and before[number] for number in range(len(own))]


def _late_joins(view: GraphView, ops: list[Op], included: list[bool], recv_of: dict[tuple[int, int], str]) -> list[Op]:
    """The ops, of which those that only join recvs wait for what the first op that uses the join waits for."""
    joins = [number for number in view.topological if included[number] and _joins_recvs(view, number, recv_of)]
    if not joins:
        return ops
    bit_of = {number: 1 << index for index, number in enumerate(joins)}
    behind = [bit_of.get(number, 0) for number in range(len(view.nodes))]  # the joins that each node depends on
    for number in view.topological:
        for source in view.inputs(number):
            behind[number] |= behind[source]
    index_of = {op.name: index for index, op in enumerate(ops)}
    place = {number: position for position, number in enumerate(view.topological)}
    waits = [False] * len(view.nodes)  # for a recv
    for number in view.topological:
        own = any((number, position) in recv_of for position in range(len(view.data_inputs[number])))
        waits[number] = own or any(waits[source] for source in view.inputs(number))
    users: dict[int, tuple[int, list[int]]] = {}  # join -> the place of its user, and what else that one waits for
    for number in joins:
        # A cast or a transposition of the join is not its user yet.
        reached = [(place[user], user) for user in view.consumers[number]]
        heapq.heapify(reached)
        seen = set(view.consumers[number])
        while reached and number not in users:
            at, user = heapq.heappop(reached)
            sources = dict.fromkeys(edge.source for edge in view.data_inputs[user] if edge.source >= 0)
            waiting = [source for source in sources if waits[source]]
            late = [
                source
                for source in waiting
                if source not in bit_of and not behind[source] & bit_of[number] and view.nodes[source].name in index_of
            ]
            if included[user] and late:
                users[number] = at, late
            elif len(waiting) > 1:
                break  # it uses the join with nothing but the join
            for more in view.consumers[user]:
                if more not in seen:
                    seen.add(more)
                    heapq.heappush(reached, (place[more], more))
    result = list(ops)
    sooner = sum(bit_of[number] for number in joins if number not in users)
    for number in sorted(users, key=lambda number: users[number][0]):
        # Of joins that wait for each other's users, the one that is used first does not: there is no cycle.
        names = [view.nodes[source].name for source in users[number][1] if not behind[source] & ~sooner]
        index = index_of[view.nodes[number].name]
        result[index] = result[index]._replace(inputs=tuple(dict.fromkeys([*result[index].inputs, *names])))
        sooner |= bit_of[number]
    return result


def _joins_recvs(view: GraphView, number: int, recv_of: dict[tuple[int, int], str]) -> bool:
    """Whether the node puts at least two recvs side by side, and nothing else."""
    if view.nodes[number].op != "ConcatV2":
        return False
    *values, _ = range(len(view.data_inputs[number]))  # the last input is the axis
    return len(values) > 1 and all(_is_recv(view, number, position, recv_of) for position in values)


def _is_recv(view: GraphView, number: int, position: int, recv_of: dict[tuple[int, int], str]) -> bool:
    """Whether an input is a recv, or made of one and of nothing else: a cast, or what takes a value that was sent ahead."""
    while (number, position) not in recv_of:
        edge = view.data_inputs[number][position]
        if edge.source < 0 or len(view.data_inputs[edge.source]) != 1 or view.tasks[edge.source] != view.tasks[number]:
            return False
        number, position = edge.source, 0
    return True
