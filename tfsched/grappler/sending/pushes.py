"""Orders pushes: what is sent so that variables are updated goes in the order in which the next step pulls the variables.

Why only under some policies: a push exists when the step's pulls have arrived and much has been computed. A policy that
holds a transfer back until a lower rank has come may hold back what that lower rank is waiting for: everything between two
tasks shares one counter, and a push may be made from a tensor that another push was made from. So pushes are tagged only for
policies that send the best of what is there (ByteScheduler, section 4.1; P3, section 4.2), and every tag is then safe.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from tfsched._options import Options
from tfsched.graph_ops import AHEAD_OP, is_update, update_name
from tfsched.grappler.reading.graph import GraphView
from tfsched.grappler.reading.op_types import has_ref_input
from tfsched.grappler.reading.transfers import CONDITIONAL, GROUP_OP, MADE_FROM_TRANSFERS, Transfer, find_transfers
from tfsched.grappler.reading.variables import VariableKey, is_stateless, key_of, variable_behind
from tfsched.grappler.sending import partition, proxies, ranks
from tfsched.grappler.sending.ranks import Ranked
from tfsched.ordering import Plan


def are_tagged(options: Options) -> bool:
    """Whether pushes get ranks at all."""
    return options.never_waits


def first_in_first_out(options: Options, plan: Plan | None) -> bool:
    """Whether all transfers have one rank. Under a policy that waits for ranks even the ordering "fifo" has several."""
    return options.ordering == "fifo" and plan is None and are_tagged(options)


def free_conditional_pulls(view: GraphView, transfers: Sequence[Transfer]) -> None:
    """Lets pulls in loops and branches be ordered, in place: under these policies nobody waits for what does not come."""
    for transfer in transfers:
        by_reference = any(has_ref_input(view.nodes[number], port) for number, port in transfer.consumers)
        if transfer.keep == CONDITIONAL and not by_reference and variable_behind(view, transfer.source) is not None:
            transfer.keep = ""


def variable_ranks(view: GraphView, ranked: Sequence[Ranked]) -> dict[VariableKey, int]:
    """Variable -> the rank with which it is pulled, alone or in a group: of the first chunk, and the lowest of several."""
    result: dict[VariableKey, int] = {}
    for one in ranked:
        source = one.transfer.source
        joined = view.nodes[source].op == GROUP_OP
        for number in [edge.source for edge in view.data_inputs[source]] if joined else [source]:
            variable = variable_behind(view, number)
            if variable is not None:
                key = key_of(view, variable)
                result[key] = min(one.rank, result.get(key, one.rank))
    return result


def find_pushes(
    view: GraphView,
    needed: Sequence[bool],
    transfers: Sequence[Transfer],
    ranks_of: Mapping[VariableKey, int],
    plan: Plan | None = None,
) -> dict[tuple[str, str], list[Transfer]]:
    """The pushes among ``transfers``, for each sender and receiver the most urgent first.

    A push is a transfer all of whose consumers are updates of variables, or stateless ops on the receiver that only lead to
    updates there. What the plan names goes first, by its priorities. All others are as urgent as the earliest of their
    variables; those that ``ranks_of`` does not know come last, in the order of their first consumers.

    Args:
      view: the placed graph.
      needed: per node whether the step runs it.
      transfers: in the order of their first consumers.
      ranks_of: from :func:`variable_ranks`, of this graph or of the one whose pulls matter.
      plan: with priorities of pushes.
    """
    found: dict[tuple[str, str], list[tuple[bool, float, int, Transfer]]] = {}
    for position, (transfer, reached) in enumerate(_with_variables(view, needed, transfers)):
        planned = None if plan is None else plan.priority_of(transfer.plan_name(view))
        urgency = min(ranks_of.get(key, math.inf) for key in reached) if planned is None else planned
        group = found.setdefault((transfer.sender, transfer.receiver), [])
        group.append((planned is None, urgency, position, transfer))
    return {tasks: [transfer for *_, transfer in sorted(group, key=lambda row: row[:3])] for tasks, group in found.items()}


def _with_variables(
    view: GraphView, needed: Sequence[bool], transfers: Iterable[Transfer]
) -> Iterator[tuple[Transfer, set[VariableKey]]]:
    """The pushes among ``transfers``, in their order, and the variables that each one updates."""
    updates = _Updates(view, needed)
    for transfer in transfers:
        if transfer.keep not in ("", MADE_FROM_TRANSFERS, CONDITIONAL):
            continue
        if any(has_ref_input(view.nodes[number], port) for number, port in transfer.consumers):
            continue
        reached = updates.behind(transfer)
        if reached:
            yield transfer, reached


def named(view: GraphView, needed: Sequence[bool], plan: Plan) -> Plan:
    """The plan with each push that it knows by its variable (:func:`tfsched.graph_ops.update_name`) as this graph calls it.

    A trace is of the graph that ran. Behind this rewrite TensorFlow fuses ops, so that a gradient is another op's output
    there, of another name.
    """
    others = {}
    for transfer, reached in _with_variables(view, needed, find_transfers(view, list(needed))):
        name = transfer.plan_name(view)
        if len(reached) == 1 and plan.priority_of(name) is None:
            ((task, variable),) = reached
            others[update_name(variable, task)] = name
    return plan.renamed(others) if others else plan


def filled(
    view: GraphView,
    needed: Sequence[bool],
    transfers: Sequence[Transfer],
    ranks_of: Mapping[VariableKey, int],
    plan: Plan,
) -> Plan:
    """The plan with a priority for each push that it does not know: that of the push whose variable is pulled next.

    So what a plan does not know (it may be of another version of the program) does not wait for all that it knows. A push
    whose variable is pulled behind all others, or not at all, stays without a priority, and goes last.

    Args:
      view: as in :func:`find_pushes`.
      needed: as there.
      transfers: as there.
      ranks_of: as there.
      plan: with priorities of pushes.
    """
    known: dict[tuple[str, str], list[tuple[float, float]]] = {}  # link -> (rank of the pull, priority)
    unknown = []
    for transfer, reached in _with_variables(view, needed, transfers):
        rank = min(ranks_of.get(key, math.inf) for key in reached)
        priority = plan.priority_of(transfer.plan_name(view))
        if priority is None:
            unknown.append((transfer, rank))
        else:
            known.setdefault((transfer.sender, transfer.receiver), []).append((rank, priority))
    priorities = dict(plan.priorities)
    for transfer, rank in unknown:
        later = [row for row in known.get((transfer.sender, transfer.receiver), ()) if row[0] >= rank]
        if later and rank < math.inf:
            priorities[transfer.plan_name(view)] = min(later)[1]
    return dataclasses.replace(plan, priorities=priorities)


def tag_pushes(
    view: GraphView,
    options: Options,
    variable_ranks: Mapping[VariableKey, int],
    plan: Plan | None = None,
    capable: Collection[str] | None = None,
    places: Mapping[str, int] | None = None,
) -> list[Ranked]:
    """Tags, and cuts where the options say so, the pushes of a graph that holds nothing but them, in place.

    That is what a step runs in the background (docs/barrier.md): mailboxes, what is computed from them, updates, and the
    updated values on their way back, which are as urgent as the pulls that they spare the next step. Running it
    twice is running it once only if :func:`tfsched.grappler.sending.proxies.strip_proxies` comes in between.

    Args:
      view: the placed graph, without proxies.
      options: nothing is done under a policy that waits for missing ranks.
      variable_ranks: of the graph that pulls the variables, ``Report.variable_ranks``.
      plan: whose order and sizes of chunks win.
      capable: the tasks whose processes know tfsched's ops; None means all.
      places: of transfers before some were joined, as for :func:`find_transfers`.

    Returns:
      The pushes with their ranks.
    """
    if not are_tagged(options):
        return []
    needed = [True] * len(view.nodes)
    transfers = [one for one in find_transfers(view, needed, places=places) if capable is None or one.sender in capable]
    if plan is not None:
        plan = filled(view, needed, transfers, variable_ranks, plan)
    groups = find_pushes(view, needed, transfers, variable_ranks, plan)
    cutter = partition.Cutter(view, options, plan, (), capable)
    ahead = _values_ahead(view, transfers, variable_ranks)
    if first_in_first_out(options, plan):
        together = [*groups.values(), *([transfer for transfer, _ in group] for group in ahead.values())]
        ranked = ranks.as_they_come(together, cutter.cut)
    else:
        ranked = ranks.number(groups.values(), cutter.cut, cutter.priority)
        ranked += [one for group in ahead.values() for one in ranks.as_urgent(group, cutter.cut)]
    proxies.insert_proxies(view, ranked, options)
    partition.insert_chunks(view, ranked, options)
    return ranked


def _values_ahead(
    view: GraphView, transfers: Sequence[Transfer], ranks_of: Mapping[VariableKey, int]
) -> dict[tuple[str, str], list[tuple[Transfer, int]]]:
    """The transfers that bring a variable's new value to the next step's reader, with the ranks of the pulls they spare."""
    found: dict[tuple[str, str], list[tuple[Transfer, int]]] = {}
    last = 1 + max(ranks_of.values(), default=-1)
    for transfer in transfers:
        variable = variable_behind(view, transfer.source)
        if view.nodes[transfer.source].op == AHEAD_OP and variable is not None:
            rank = ranks_of.get(key_of(view, variable), last)
            found.setdefault((transfer.sender, transfer.receiver), []).append((transfer, rank))
    return found


class _Updates:
    """Follows transfers to the updates that they lead to; answers are remembered."""

    def __init__(self, view: GraphView, needed: Sequence[bool]):
        self._view, self._needed = view, needed
        self._known: dict[int, set[VariableKey] | None] = {}

    def behind(self, transfer: Transfer) -> set[VariableKey] | None:
        """The variables that the transfer helps to update; None if it also leads elsewhere."""
        return self._union([number for number, _ in transfer.consumers])

    def _union(self, numbers: Collection[int]) -> set[VariableKey] | None:
        keys: set[VariableKey] = set()
        for number in numbers:
            found = self._from(number)
            if found is None:
                return None
            keys |= found
        return keys or None

    def _from(self, number: int) -> set[VariableKey] | None:
        if number not in self._known:
            self._known[number] = None  # a loop leads nowhere
            self._known[number] = self._look(number)
        return self._known[number]

    def _look(self, number: int) -> set[VariableKey] | None:
        view = self._view
        if is_update(view.nodes[number].op):
            source = view.data_inputs[number][0].source
            variable = variable_behind(view, source) if source >= 0 else None
            return None if variable is None else {key_of(view, variable)}
        if not is_stateless(view, number):
            return None
        readers = [
            consumer
            for consumer in dict.fromkeys(view.consumers[number])
            if self._needed[consumer] and any(edge.source == number for edge in view.data_inputs[consumer])
        ]
        if any(view.tasks[reader] != view.tasks[number] for reader in readers):
            return None
        return self._union(readers)
