"""``tfsched order``: a trace or a DAG JSON -> a Plan."""

from __future__ import annotations

import json
from typing import Any

from tfsched import ordering
from tfsched.commands.files import read_dag_or_trace, write_text
from tfsched.commands.flags import CommandFlags, UsageError


def define(flags: CommandFlags) -> None:
    flags.string("algorithm", "tio", "ordering to use: one of those registered, or of --plugin")
    flags.string("plan", "", "write the plan to this file")
    flags.boolean("json", False, "print the result as JSON")
    flags.integer("seed", 0, "for orderings that draw random numbers")
    flags.string("plugin", "", "Python file that registers more orderings")
    flags.string("receiver", "", "of a trace: the task whose order is shown; empty: the one that computes most")
    flags.boolean("quiet", False, "print nothing but errors and --json")


def run(flags: CommandFlags, arguments: list[str]) -> int:
    if len(arguments) != 1:
        raise UsageError(
            f"tfsched order takes one file, a trace or a DAG JSON, and got {len(arguments)}: {' '.join(arguments)}"
        )
    if flags.plugin:
        ordering.load_plugin(flags.plugin)
    ordering.get(flags.algorithm)  # a wrong name is said before a large file is read
    source = read_dag_or_trace(arguments[0])
    if isinstance(source, ordering.Dag):
        dag = source
        plan = ordering.make_plan(dag, flags.algorithm, seed=flags.seed)
    else:
        dag = source.dag(flags.receiver or None)
        plan = source.plan(flags.algorithm, seed=flags.seed)
    result = summary(dag, plan)
    if flags.plan:
        write_text(flags.plan, json.dumps(plan.to_json(), indent=1) + "\n")
    if flags.json:
        print(json.dumps({**result, "plan": plan.to_json()}, indent=1))
    elif not flags.quiet:
        show(result, flags.plan)
    return 0


def summary(dag: Any, plan: Any) -> dict[str, Any]:
    """Bounds, the predicted makespan and the order, times in µs."""
    upper, lower = ordering.upper_bound_us(dag), ordering.lower_bound_us(dag)
    makespan = ordering.list_schedule(dag, plan.priorities).makespan_us
    recvs = [op.name for op in dag.recvs]
    recvs.sort(key=lambda name: plan.priorities[name])
    return {
        "algorithm": plan.algorithm,
        "ops": len(dag.ops),
        "recvs": len(recvs),
        "upper_bound_us": upper,
        "lower_bound_us": lower,
        "makespan_us": makespan,
        "efficiency": ordering.efficiency(upper, lower, makespan),
        "speedup": ordering.speedup(upper, lower),
        "order": recvs,
    }


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
