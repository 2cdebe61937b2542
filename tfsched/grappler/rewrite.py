"""The pass: (graph, options) -> rewritten graph. A pure function, so every rewrite can be tested without a session."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from tfsched import ordering as orderings
from tfsched._options import Options
from tfsched.errors import TfschedError
from tfsched.graph_ops import EXCHANGE_OP
from tfsched.grappler.barrier import crossing as barrier
from tfsched.grappler.barrier import guards
from tfsched.grappler.barrier.background import Body
from tfsched.grappler.collectives.exchange import Exchanged, schedule_all_reduces
from tfsched.grappler.collectives.keys import AGREE_OP, REDUCE_OPS
from tfsched.grappler.plugins import load_permitted
from tfsched.grappler.reading.clients import count_workers, home_of_function, is_function
from tfsched.grappler.reading.graph import GraphView, split_input
from tfsched.grappler.reading.transfers import (
    CONDITIONAL,
    MADE_FROM_TRANSFERS,
    Transfer,
    find_transfers,
    is_placed,
    receivers,
)
from tfsched.grappler.reading.variable_uses import Variable
from tfsched.grappler.reading.variables import VariableKey, is_handle
from tfsched.grappler.sending import dags, grouping, partition, proxies, pushes, ranks
from tfsched.ordering import Plan

# Why a session's variables keep the barrier although ``barrier=False``.
_REDUCED = "gradients are all-reduced in a session"

_NAMES_SHOWN = 5

# (sender, receiver) -> the ordered transfers between them, the first to go first.
Groups = dict[tuple[str, str], list[Transfer]]


@dataclasses.dataclass
class Report:
    """What the pass did to one graph.

    Attributes:
      ordered: how many transfers carry a rank now, and ``pushes`` how many of them are pushes.
      unordered: reason -> how many transfers were left alone for it.
      cut: how many of the ordered leave as chunks, and ``chunks`` how many chunks these are.
      whole: reason -> how many ordered transfers leave whole although chunks were asked for.
      groups: how many of the ordered are several transfers joined, and ``members`` how many these were.
      alone: reason -> how many transfers leave alone although the plan groups them.
      variable_ranks: variable, as (task, shared name) -> the rank with which it is pulled.
      crossing: names of the variables that are updated in the background.
      kept: name of a variable whose update stays in the step although ``barrier=False`` -> why.
      home: the task that runs the background function; "" if the graph has none.
      waits: the step waits for background updates before it uses a variable.
      exchanged: what was done to all-reduces.
      options: what "auto" was replaced by; None if the graph was none of ours.
    """

    ordered: int = 0
    pushes: int = 0
    unordered: dict[str, int] = dataclasses.field(default_factory=dict)
    cut: int = 0
    chunks: int = 0
    whole: dict[str, int] = dataclasses.field(default_factory=dict)
    groups: int = 0
    members: int = 0
    alone: dict[str, int] = dataclasses.field(default_factory=dict)
    variable_ranks: dict[VariableKey, int] = dataclasses.field(default_factory=dict)
    crossing: list[str] = dataclasses.field(default_factory=list)
    kept: dict[str, str] = dataclasses.field(default_factory=dict)
    home: str = ""
    waits: bool = False
    exchanged: Exchanged = dataclasses.field(default_factory=Exchanged)
    options: Options | None = None

    def count(self, transfers: Iterable[Transfer], ranked: Collection[ranks.Ranked], whole: dict[str, int]) -> None:
        """Fills in the numbers."""
        cuts = [one.cut for one in ranked if one.cut is not None]
        self.ordered, self.cut, self.chunks, self.whole = len(ranked), len(cuts), sum(cut.chunks for cut in cuts), whole
        self.unordered = dict(collections.Counter(transfer.keep for transfer in transfers if transfer.keep))


def rewrite(
    graph: Any,
    options: Options,
    fetches: Iterable[str] = (),
    keep: Iterable[str] = (),
    feeds: Iterable[str] = (),
    capable: Collection[str] | None = None,
    client: str = "",
    home: str = "",
    local: Collection[str] = (),
    link_bps: Callable[[], float] = lambda: 0,
) -> tuple[Any | None, Report]:
    """Moves updates behind the step's end where the options say so, and orders the transfers of a placed graph.

    Running it on its own output gives the same graph again.

    Args:
      graph: a GraphDef whose nodes are placed; it is used up.
      options: what to do.
      fetches: names of the tensors and nodes that the step is run for; empty means all nodes.
      keep: names of further nodes that the step runs.
      feeds: names of the tensors that the step is given; what they were made from does not run.
      capable: the tasks whose processes know tfsched's ops; None means all.
      client: who trains, for background updates: sessions of one client see each other's last finished step. "" stands for
        the task that runs the updates.
      home: the task of the process where the session's graphs are rewritten. Its background functions start there, so that
        every graph of the session knows whom to wait for, whichever runs first. "": nothing crosses, nothing waits.
      local: the tasks of this process. A function's updates start where it runs, and all-reduces there are exchanged.
      link_bps: says how many bits per second the graph's links carry, 0 if that is not known. Called if pieces depend on it.

    Returns:
      The rewritten GraphDef, or None where there is nothing to do, and the report.

    Raises:
      ValueError: the ordering, plan or plugin cannot be used; the message says why.
    """
    step = _Step(list(fetches), list(keep), list(feeds), capable)
    report = Report()
    if barrier.is_background(graph):  # Grappler shows it to us as a graph of its own; its ranks are the step's business
        return None, report
    bare = proxies.strip_proxies(graph)
    changed = bare is not graph
    graph = bare
    plan = load_plan(options.plan) if options.plan else None
    if any(node.op in REDUCE_OPS for node in graph.node) and options.ordering != "none":
        changed = _schedule_all_reduces(GraphView(graph), step, options, plan, local, report) or changed
    # All-reduces have sizes of their own. So has a plan, and the credit is for its sizes then, not for the link's.
    asks = options.follows_link and not (plan and plan.cuts)
    options = options.settled(link_bps(), count_workers(GraphView(graph), capable or ())) if asks else options.settled()
    report.options = options
    crossing = None
    if not barrier.has_crossed(graph):
        view = GraphView(graph)
        if is_function(graph):
            # What a worker updates with reduced gradients is in its own memory; else nothing crosses within a task.
            exchanges = any(node.op == EXCHANGE_OP for node in view.nodes)
            if not options.barrier and (exchanges or len(set(view.tasks) - {""}) > 1):
                crossing = _cross_function(view, step, client, local, report)
        elif home:
            reduces = any(node.op == AGREE_OP for node in view.nodes)
            crossing = _cross_session(view, step, None if options.barrier or reduces else client, home, report)
            if reduces and not options.barrier:
                report.kept = dict.fromkeys((node.name for node in view.nodes if is_handle(node)), _REDUCED)
        changed = changed or crossing is not None or report.waits
    if options.ordering != "none" and is_placed(graph):
        changed = _order_transfers(GraphView(graph), step, options, plan, report) or changed
    if crossing is not None:
        if options.ordering != "none":
            view = GraphView(crossing.graph)
            view, plan, places = _join_groups(view, [True] * len(view.nodes), step, options, plan, report)
            report.pushes += len(pushes.tag_pushes(view, options, report.variable_ranks, plan, capable, places))
        crossing.finish(graph)
    return (graph if changed else None), report


@dataclasses.dataclass
class _Step:
    """What a graph is run for, and where: arguments of :func:`rewrite`."""

    fetches: list[str]
    keep: list[str]
    feeds: list[str]
    capable: Collection[str] | None

    def needed(self, view: GraphView) -> list[bool]:
        """Per node whether the step runs it."""
        if not self.fetches:
            return [True] * len(view.nodes)
        fed = [split_input(name)[0] for name in self.feeds]
        return view.ancestors([*(split_input(name)[0] for name in self.fetches), *self.keep], fed)

    def numbers(self, view: GraphView, names: list[str]) -> set[int]:
        """The numbers of the named nodes, or of the nodes of the named tensors."""
        return {view.index[name] for name in (split_input(text)[0] for text in names) if name in view.index}


def _cross_session(view: GraphView, step: _Step, client: str | None, home: str, report: Report) -> Body | None:
    """Cuts a training step in place if there is a ``client``; makes any other step wait for the updates under way."""
    needed = step.needed(view)
    fetched, kept, fed = (step.numbers(view, names) for names in (step.fetches, step.keep, step.feeds))
    if client is not None:
        crossing, reasons = barrier.cross(view, needed, client, fetched | kept | fed, step.capable, home)
        if _note(crossing, reasons, report):
            return crossing
    if step.capable is None or len(step.capable) > 1:  # else there is nobody to send an update
        report.waits = guards.guard_session_step(view, needed, home, (fetched | kept) - fed, step.capable, client)
    return None


def _cross_function(view: GraphView, step: _Step, client: str, local: Collection[str], report: Report) -> Body | None:
    """The same for a function's step, whose updates start where it runs."""
    needed = step.needed(view)
    fetched, kept, fed = (step.numbers(view, names) for names in (step.fetches, step.keep, step.feeds))
    # A function keeps what has effects: that shall run, but nobody looks at what it puts out.
    crossing, reasons = barrier.cross(view, needed, client, fetched | fed, step.capable)
    if not _note(crossing, reasons, report) and (home := home_of_function(view, local)):
        report.waits = guards.begin_function_with_drain(view, needed, client, home, (fetched | kept) - fed)
    return crossing


def _schedule_all_reduces(
    view: GraphView, step: _Step, options: Options, plan: Plan | None, local: Collection[str], report: Report
) -> bool:
    """Exchanges the all-reduces that can be tensor by tensor, in place; returns whether there are any."""
    needed = step.needed(view)
    visible = step.numbers(view, [*step.fetches, *step.feeds])
    # A session's graph is run beside others, which would have to be told; a function's callers are this process's.
    movable = not options.barrier and is_function(view.graph)
    if options.plugin:
        load_permitted(options.plugin)
    report.exchanged = schedule_all_reduces(view, needed, visible, local, options, plan, movable)
    return report.exchanged.packs > 0


def _note(crossing: Body | None, reasons: dict[Variable, str], report: Report) -> bool:
    """Reports which variables cross and why others stay; returns whether any crosses."""
    report.kept = {variable.name: reason for variable, reason in reasons.items()}
    if crossing is not None:
        report.crossing = [variable.name for variable in crossing.variables]
        report.home = crossing.home
    return crossing is not None


def _order_transfers(view: GraphView, step: _Step, options: Options, plan: Plan | None, report: Report) -> bool:
    """Gives the transfers that can be ordered their ranks, in place; returns whether there are any."""
    needed = step.needed(view)
    view, plan, places = _join_groups(view, needed, step, options, plan, report)
    needed = step.needed(view)
    transfers = find_transfers(view, needed, places=places)
    if pushes.are_tagged(options):
        pushes.free_conditional_pulls(view, transfers)
    for transfer in transfers:
        if not transfer.keep and step.capable is not None and transfer.sender not in step.capable:
            transfer.keep = "from a task without tfsched"
    cutter = partition.Cutter(view, options, plan, step.feeds, step.capable)
    groups: Groups = {}
    for receiver in receivers(transfers):
        groups.update(_order(view, needed, transfers, receiver, options, plan))

    def number() -> list[ranks.Ranked]:
        if pushes.first_in_first_out(options, plan):
            return ranks.as_they_come(groups.values(), cutter.cut)
        return ranks.number(groups.values(), cutter.cut, cutter.priority)

    ranked = number()
    report.variable_ranks = pushes.variable_ranks(view, ranked)
    if pushes.are_tagged(options):
        made = _late(transfers, step.capable)
        if plan is not None:
            plan = pushes.filled(view, needed, made, report.variable_ranks, plan)
            cutter = partition.Cutter(view, options, plan, step.feeds, step.capable)
        report.pushes = _add_pushes(groups, view, needed, made, report.variable_ranks, plan)
        ranked = number()
    report.count(transfers, ranked, cutter.whole)
    if ranked:
        proxies.insert_proxies(view, ranked, options)
        partition.insert_chunks(view, ranked, options)
    return bool(ranked)


def _join_groups(
    view: GraphView, needed: list[bool], step: _Step, options: Options, plan: Plan | None, report: Report
) -> tuple[GraphView, Plan | None, dict[str, int]]:
    """Joins what the plan groups, in place.

    Returns:
      The graph as it is then, the plan with what it calls transfers there, and the transfers' places (``grouping.Joined``).
    """
    if plan is not None and pushes.are_tagged(options):
        plan = pushes.named(view, needed, plan)
    if plan is None or not any(len(group) > 1 for group in plan.groups or ()):
        return view, plan, {}
    joined = grouping.join_groups(view, needed, plan, pushes.are_tagged(options), step.feeds, step.capable)
    report.groups, report.members = report.groups + joined.groups, report.members + joined.members
    for reason, count in joined.alone.items():
        report.alone[reason] = report.alone.get(reason, 0) + count
    return (GraphView(view.graph) if joined.groups else view), joined.plan, joined.places


def _order(
    view: GraphView, needed: list[bool], transfers: list[Transfer], receiver: str, options: Options, plan: Plan | None
) -> Groups:
    """Orders the transfers to one receiver, and lists those of each of its senders.

    Equal priorities do not stay equal, but follow the order of the first consumers: the paper lets them run in parallel, but
    two transfers in parallel on one link both arrive when the later of them would have arrived alone.
    """
    mine = [transfer for transfer in transfers if transfer.receiver == receiver and not transfer.keep]
    priority = _priorities(view, needed, transfers, receiver, options, plan)
    groups: Groups = {}
    for transfer in mine:  # already in the order of their first consumers, and sorting is stable
        groups.setdefault((transfer.sender, receiver), []).append(transfer)
    for group in groups.values():
        group.sort(key=lambda transfer: priority[transfer.name(view)])
    return groups


def _late(transfers: list[Transfer], capable: Collection[str] | None) -> list[Transfer]:
    """What may be a push: transfers that only a policy that never waits can order."""
    late = (MADE_FROM_TRANSFERS, CONDITIONAL)
    return [one for one in transfers if one.keep in late and (capable is None or one.sender in capable)]


def _add_pushes(
    groups: Groups,
    view: GraphView,
    needed: list[bool],
    made: list[Transfer],
    ranks_of: dict[VariableKey, int],
    plan: Plan | None,
) -> int:
    """Appends the pushes to what already goes between the same tasks, marks them as ordered and counts them."""
    found = pushes.find_pushes(view, needed, made, ranks_of, plan)
    for tasks, group in found.items():
        groups.setdefault(tasks, []).extend(group)
        for transfer in group:
            transfer.keep = ""
    return sum(map(len, found.values()))


def _priorities(
    view: GraphView, needed: list[bool], transfers: list[Transfer], receiver: str, options: Options, plan: Plan | None
) -> dict[str, tuple[int, float]]:
    """Per transfer name a sort key: those that the plan names first, then the ordering's."""
    mine = [transfer.name(view) for transfer in transfers if transfer.receiver == receiver and not transfer.keep]
    planned: dict[str, float] = {}
    if plan is not None:
        planned = {name: value for name in mine if (value := plan.priority_of(name)) is not None}
    computed: dict[str, float] = {}
    if len(planned) < len(mine):
        if options.plugin:
            load_permitted(options.plugin)
        name = options.ordering
        if name == "tao" and plan is None:
            raise TfschedError(
                "Ordering 'tao' needs op times and no plan is given; trace some steps with tfsched.trace_steps or "
                "trace_function, save trace.plan('tao') and name the file in Options(plan=...)."
            )
        computed = orderings.get(name)(dags.dag_of_placed_graph(view, needed, transfers, receiver), seed=options.seed)
    return {name: (0, planned[name]) if name in planned else (1, computed[name]) for name in mine}


def load_plan(text_or_path: str) -> Plan:
    """A Plan from its JSON text or from a file."""
    if text_or_path.lstrip().startswith("{"):
        return Plan.from_json(text_or_path)
    import tensorflow as tf

    return Plan.load(text_or_path, open_fn=tf.io.gfile.GFile)


def explain(report: Report) -> str:
    """One line for the log."""
    text = f"{report.ordered} transfers ordered"
    if report.exchanged.packs:
        text += f"; {report.exchanged.packs} all-reduces exchanged as {report.exchanged.tensors} tensors"
    if report.pushes:
        text += f" ({report.pushes} pushes)"
    if report.cut:
        text += f", {report.cut} of them in {report.chunks} chunks"
        if report.options is not None and report.options.partition_bytes > 0 and not report.options.plan:
            text += f" of at most {report.options.partition_bytes:,} bytes"
    if report.groups:
        text += f", {report.groups} of them groups of the plan with {report.members} transfers"
    named = (
        ("whole", report.whole),
        ("not grouped", report.alone),
        ("left alone", report.unordered),
        ("all-reduces left alone", report.exchanged.kept),
    )
    for what, reasons in named:
        listed = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
        text += f"; {what}: {listed}" if listed else ""
    if report.crossing:
        text += f"; {len(report.crossing)} variables updated in the background from {report.home}"
    if report.kept:
        text += f"; updated in the step: {by_reason(report.kept)}"
    return text


def by_reason(kept: Mapping[str, str]) -> str:
    """Names and the reason of each, as a text that names at most five of a reason."""
    groups = []
    for reason in sorted(set(kept.values())):
        names = sorted(name for name, why in kept.items() if why == reason)
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        groups.append(f"{', '.join(names[:_NAMES_SHOWN])}{more} ({reason})")
    return "; ".join(groups)
