"""The pass: (graph, options) -> rewritten graph. A pure function, so every rewrite can be tested without a session."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import Any

from tfsched import ordering as orderings
from tfsched.errors import TfschedError
from tfsched.grappler import dags, proxies
from tfsched.grappler.graph import GraphView, split_input
from tfsched.grappler.transfers import Transfer, find_transfers, is_placed, receivers
from tfsched.options import Options


@dataclasses.dataclass
class Report:
    """What the pass did to one graph.

    Attributes:
      ordered: how many transfers carry a proxy now.
      unordered: reason -> how many transfers were left alone for it.
    """

    ordered: int = 0
    unordered: dict[str, int] = dataclasses.field(default_factory=dict)


def rewrite(
    graph: Any,
    options: Options,
    fetches: Iterable[str] = (),
    keep: Iterable[str] = (),
    feeds: Iterable[str] = (),
    capable: Collection[str] | None = None,
) -> tuple[Any | None, Report]:
    """Orders the transfers of a placed graph.

    Running it on its own output gives the same graph again.

    Args:
      graph: a GraphDef whose nodes are placed; it is used up.
      options: what to do.
      fetches: names of the tensors and nodes that the step is run for; empty means all nodes.
      keep: names of further nodes that the step runs.
      feeds: names of the tensors that the step is given; what they were made from does not run.
      capable: the tasks whose processes know the proxy op; None means all.

    Returns:
      The rewritten GraphDef, or None where there is nothing to order, and the report.

    Raises:
      ValueError: the ordering, plan or plugin cannot be used; the message says why.
    """
    report = Report()
    bare = proxies.strip_proxies(graph)
    had_proxies = bare is not graph
    graph = bare
    if options.ordering == "none" or not is_placed(graph):
        return (graph if had_proxies else None), report
    view = GraphView(graph)
    names = [split_input(name)[0] for name in fetches]
    needed = view.ancestors([*names, *keep], [split_input(name)[0] for name in feeds]) if names else [True] * len(view.nodes)
    transfers = find_transfers(view, needed)
    for transfer in transfers:
        if not transfer.keep and capable is not None and transfer.sender not in capable:
            transfer.keep = "from a task without tfsched"
        if transfer.keep:
            report.unordered[transfer.keep] = report.unordered.get(transfer.keep, 0) + 1
    ranked: list[proxies.Ranked] = []
    for receiver in receivers(transfers):
        ranked.extend(_rank(view, needed, transfers, receiver, options))
    report.ordered = len(ranked)
    if not ranked:
        return (graph if had_proxies else None), report
    proxies.insert_proxies(view, ranked, options)
    return graph, report


def _rank(
    view: GraphView, needed: list[bool], transfers: list[Transfer], receiver: str, options: Options
) -> list[proxies.Ranked]:
    """Orders the transfers to one receiver and normalises the priorities for each of its senders.

    Equal priorities get different ranks, in the order of their first consumers: the paper lets them run in parallel, but
    two transfers in parallel on one link both arrive when the later of them would have arrived alone.
    """
    mine = [transfer for transfer in transfers if transfer.receiver == receiver and not transfer.keep]
    priority = _priorities(view, needed, transfers, receiver, options)
    by_sender: dict[str, list[Transfer]] = {}
    for transfer in mine:  # already in the order of their first consumers, and sorting is stable
        by_sender.setdefault(transfer.sender, []).append(transfer)
    ranked: list[proxies.Ranked] = []
    for group in by_sender.values():
        group.sort(key=lambda transfer: priority[transfer.name(view)])
        ranked.extend(proxies.Ranked(transfer, rank, len(group)) for rank, transfer in enumerate(group))
    return ranked


def _priorities(
    view: GraphView, needed: list[bool], transfers: list[Transfer], receiver: str, options: Options
) -> dict[str, tuple[int, float]]:
    """Per transfer name a sort key: those that the plan names first, then the ordering's."""
    mine = [transfer.name(view) for transfer in transfers if transfer.receiver == receiver and not transfer.keep]
    planned: dict[str, float] = {}
    if options.plan:
        plan = load_plan(options.plan)
        planned = {name: value for name in mine if (value := plan.priority_of(name)) is not None}
    computed: dict[str, float] = {}
    if len(planned) < len(mine):
        if options.plugin:
            orderings.load_plugin(options.plugin)
        name = options.ordering
        if name == "tao" and not options.plan:
            raise TfschedError(
                "Ordering 'tao' needs op times and no plan is given; trace some steps with tfsched.trace_steps, save "
                "trace.plan('tao') and name the file in Options(plan=...)."
            )
        computed = orderings.get(name)(dags.dag_of_placed_graph(view, needed, transfers, receiver), seed=options.seed)
    return {name: (0, planned[name]) if name in planned else (1, computed[name]) for name in mine}


def load_plan(text_or_path: str) -> Any:
    """A Plan from its JSON text or from a file."""
    if text_or_path.lstrip().startswith("{"):
        return orderings.Plan.from_json(text_or_path)
    import tensorflow as tf

    return orderings.Plan.load(text_or_path, open_fn=tf.io.gfile.GFile)


def explain(report: Report) -> str:
    """One line for the log."""
    left = ", ".join(f"{count} {reason}" for reason, count in sorted(report.unordered.items()))
    return f"{report.ordered} transfers ordered" + (f"; left alone: {left}" if left else "")
