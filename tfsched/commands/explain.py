"""``tfsched explain``: why an order is what it is, recv by recv, and what a step is waiting for."""

from __future__ import annotations

import json
from typing import Any

from tfsched import ordering
from tfsched.commands import inputs
from tfsched.commands.balance import Balance, balance_of
from tfsched.commands.flags import CommandFlags
from tfsched.commands.predicting import predict, single_dag
from tfsched.commands.showing import plain, say, table
from tfsched.ordering import Dag
from tfsched.ordering.evaluate import sent
from tfsched.ordering.plan import plan_of
from tfsched.ordering.reasons import Reason, Step, critical_path, reasons


def define(flags: CommandFlags) -> None:
    inputs.define(flags)
    flags.string("algorithm", "tao", "ordering to explain: one of those registered, or of --plugin")
    flags.integer("seed", 0, "for orderings that draw random numbers")
    flags.string("plugin", "", "Python file that registers more orderings")
    flags.string("bandwidth", "", 'of the links, as "10gbit" or "1e9"; empty: the DAG\'s own, 10gbit for a model')
    flags.number("startup_us", -1.0, "start-up cost of each message in µs; below zero: the DAG's own, 0 for a model")
    flags.string("recv", "", "only the recvs whose name has this in it")
    flags.integer("rows", 20, "rows of each table; 0: all", lower=0)
    flags.boolean("json", False, "print the result as JSON, all rows")
    flags.boolean("quiet", False, "print nothing but errors and --json")


def run(flags: CommandFlags, arguments: list[str]) -> int:
    if flags.plugin:
        ordering.load_plugin(flags.plugin)
    algorithm = ordering.get(flags.algorithm)
    dag = single_dag(inputs.read_source(flags, arguments), flags)
    decision = algorithm(dag, seed=flags.seed)
    plan = plan_of(dag, flags.algorithm, decision, flags.seed)
    order = [reason for reason in reasons(dag, plan.priorities) if flags.recv in reason.name]
    schedule = predict(dag, decision)
    path = critical_path(dag, schedule, sent(dag, decision))
    if flags.json:
        result = result_of(dag, flags.algorithm, order, path) | result_of_balance(balance_of(dag))
        print(json.dumps(result, indent=1, allow_nan=False))
    elif not flags.quiet:
        show(dag, flags, order, path)
        show_balance(balance_of(dag))
    return 0


def result_of(dag: Dag, algorithm: str, order: list[Reason], path: list[Step]) -> dict[str, Any]:
    """The JSON object: times in µs."""
    return {
        "algorithm": algorithm,
        "ops": len(dag.ops),
        "recvs": [reason._asdict() for reason in order],
        "makespan_us": path[-1].end_us,
        "critical_path": [step._asdict() for step in path],
        "on_the_path_us": on_the_path_us(path),
    }


def result_of_balance(balance: Balance) -> dict[str, Any]:
    """The JSON object's part about links: bytes, and times in µs."""
    return {
        "links": [link._asdict() for link in balance.links],
        "busiest_us": balance.busiest_us,
        "balanced_busiest_us": balance.balanced_busiest_us,
    }


def on_the_path_us(path: list[Step]) -> dict[str, float]:
    """How much of the step each resource accounts for, in µs."""
    sums: dict[str, float] = {}
    for step in path:
        sums[step.resource] = sums.get(step.resource, 0.0) + step.end_us - step.start_us
    return sums


def show(dag: Dag, flags: CommandFlags, order: list[Reason], path: list[Step]) -> None:
    rows = flags.rows or len(order)
    made = table(f"{flags.algorithm}: each recv at its turn, times in µs", "recv", "M", "P", "M+", "why here")
    for reason in order[:rows]:
        plus = "none" if reason.m_plus_us is None else f"{reason.m_plus_us:,.1f}"
        made.add_row(plain(reason.name), f"{reason.m_us:,.1f}", f"{reason.p_us:,.1f}", plus, plain(reason.why))
    say(made)
    if len(order) > rows:
        say(f"... and {len(order) - rows} more (--rows 0 shows all)")
    say("M: its transfer; P: computation that waits for it alone; M+: least transfer that starts what needs it and another.")
    makespan_us = path[-1].end_us
    shares = ", ".join(f"{name} {time_us / (makespan_us or 1):.0%}" for name, time_us in on_the_path_us(path).items())
    say(f"\nA step takes {makespan_us:,.1f} µs. On its critical path of {len(path)} ops: {shares}.")
    made = table("the critical path", "from", "to", "resource", "op", "why then")
    joined = join(path)
    rows = flags.rows or len(joined)
    for step in joined[:rows]:
        made.add_row(f"{step.start_us:,.1f}", f"{step.end_us:,.1f}", plain(step.resource), plain(step.op), plain(step.why))
    say(made)
    if len(joined) > rows:
        say(f"... and {len(joined) - rows} more (--rows 0 shows all)")


def show_balance(balance: Balance) -> None:
    """Which server's link carries what, where there are several."""
    if not balance.several:
        return
    made = table("what each link carries, times in µs", "link", "recvs", "MB", "time", "time if balanced")
    for link in balance.links:
        row = (f"{link.recvs}", f"{link.bytes / 1e6:,.1f}", f"{link.time_us:,.1f}", f"{link.balanced_us:,.1f}")
        made.add_row(plain(link.name), *row)
    say(made)
    now_us, then_us = balance.busiest_us, balance.balanced_busiest_us
    if then_us < 0.98 * now_us:
        say(
            f"No order makes this step shorter than {now_us:,.1f} µs, the time of its busiest link. With balanced servers "
            f"(tfsched.placement) that limit is {then_us:,.1f} µs."
        )
    else:
        say("Balanced servers (tfsched.placement) would bring less than 2 %.")


def join(path: list[Step]) -> list[Step]:
    """The path with ops that follow one another on one resource as one row."""
    result: list[Step] = []
    count = 1
    for step in path:
        if result and result[-1].resource == step.resource:
            count += 1
            first = result[-1].op.partition(" ... ")[0]
            result[-1] = result[-1]._replace(op=f"{first} ... {step.op} ({count} ops)", end_us=step.end_us)
        else:
            result.append(step)
            count = 1
    return result
