"""``tfsched order``: a DAG, trace, layer table or built-in model -> a Plan."""

from __future__ import annotations

import json
from typing import Any

from tfsched import ordering
from tfsched.commands import inputs
from tfsched.commands.files import write_bytes, write_text
from tfsched.commands.flags import CommandFlags
from tfsched.commands.predicting import decide, predict, single_dag
from tfsched.ordering import Dag, Plan
from tfsched.ordering.layers import LayerTable
from tfsched.ordering.plan import plan_of


def define(flags: CommandFlags) -> None:
    inputs.define(flags)
    flags.string("algorithm", "tio", "ordering to use: one of those registered, or of --plugin")
    flags.string("plan", "", "write the plan to this file")
    flags.boolean("json", False, "print the result as JSON")
    flags.integer("seed", 0, "for orderings that draw random numbers")
    flags.string("plugin", "", "Python file that registers more orderings")
    flags.string("bandwidth", "", 'of the links, as "10gbit" or "1e9"; empty: the DAG\'s own, 10gbit for a model')
    flags.number("startup_us", -1.0, "start-up cost of each message in µs; below zero: the DAG's own, 0 for a model")
    flags.strings("compare", "", 'instead of a plan: compare these orderings with the optimum; "all": every registered one')
    flags.number("limit_s", 10.0, "of --compare: seconds that the search for the optimum may take", lower=0.0)
    flags.string("timeline", "", "write the step's timeline for Perfetto to this file")
    flags.string("plot", "", "draw the step as a Gantt chart into this PNG")
    flags.boolean("quiet", False, "print nothing but errors and --json")


def run(flags: CommandFlags, arguments: list[str]) -> int:
    if flags.plugin:
        ordering.load_plugin(flags.plugin)
    ordering.get(flags.algorithm)  # a wrong name is said before a large file is read
    if flags.compare:
        return run_comparison(flags, arguments)
    source = inputs.read_source(flags, arguments)
    dag = single_dag(source, flags)
    decision = decide(source, dag, flags.algorithm, flags.seed)
    plan = plan_of(dag, flags.algorithm, decision, flags.seed)
    schedule = predict(dag, decision)
    result = summary(dag, plan, schedule.makespan_us)
    # A trace of a cluster has several receivers, all of which need priorities.
    alone = isinstance(source, (Dag, LayerTable)) or source.exchanges
    link = inputs.parse_bandwidth(flags.bandwidth), None if flags.startup_us < 0 else flags.startup_us
    saved = plan if alone else source.plan(flags.algorithm, flags.seed, *link)
    if flags.plan:
        write_text(flags.plan, json.dumps(saved.to_json(), indent=1) + "\n")
    if flags.timeline or flags.plot:
        draw(flags, dag, decision, schedule)
    if flags.json:
        print(json.dumps({**result, "plan": saved.to_json()}, indent=1, allow_nan=False))
    elif not flags.quiet:
        show(result, flags.plan)
    return 0


def run_comparison(flags: CommandFlags, arguments: list[str]) -> int:
    from tfsched.commands import comparing

    names = comparing.names_of(flags.compare)
    dag = single_dag(inputs.read_source(flags, arguments), flags)
    result = comparing.compare(dag, names, flags.seed, flags.limit_s, flags.quiet)
    if flags.json:
        print(json.dumps(result, indent=1, allow_nan=False))
    elif not flags.quiet:
        comparing.show(result)
    return 0


def summary(dag: Dag, plan: Plan, makespan_us: float) -> dict[str, Any]:
    """Bounds, the predicted makespan and the order, times in µs."""
    upper, lower = ordering.upper_bound_us(dag), ordering.lower_bound_us(dag)
    recvs = [op.name for op in dag.recvs]
    recvs.sort(key=lambda name: plan.priorities[name])
    return {
        "algorithm": plan.algorithm,
        "ops": len(dag.ops),
        "recvs": len(recvs),
        "upper_bound_us": upper,
        "lower_bound_us": lower,
        "makespan_us": makespan_us,
        "efficiency": ordering.efficiency(upper, lower, makespan_us),
        "speedup": ordering.speedup(upper, lower),
        "order": recvs,
    }


def draw(flags: CommandFlags, dag: Dag, decision: Any, schedule: Any) -> None:
    """Writes the timeline and the Gantt chart that were asked for."""
    from tfsched.reports import spans

    drawn = spans.of_decision(dag, decision, schedule)
    if flags.timeline:
        write_text(flags.timeline, json.dumps(spans.perfetto(drawn, flags.algorithm), allow_nan=False))
    if flags.plot:
        from tfsched.reports import pictures

        write_bytes(flags.plot, pictures.png(pictures.gantt({flags.algorithm: drawn})))


def show(result: dict[str, Any], plan_path: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(soft_wrap=True)
    table = Table("", "µs", title=f"{result['algorithm']}: {result['ops']} ops, {result['recvs']} recvs")
    for key in ("lower_bound_us", "makespan_us", "upper_bound_us"):
        table.add_row(key.removesuffix("_us").replace("_", " "), f"{result[key]:,.1f}")
    table.add_row("E (efficiency)", f"{result['efficiency']:.3f}")
    table.add_row("S (speedup)", f"{result['speedup']:.3f}")
    console.print(table)
    first = result["order"][:10]
    console.print("first: " + ", ".join(first) + (" ..." if len(result["order"]) > len(first) else ""), markup=False)
    if plan_path:
        console.print(f"plan written to {plan_path}", markup=False)
