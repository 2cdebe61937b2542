"""Push and pull through parameter servers: the bound of a training step, `optimal`, and what others take.

``python benchmarks/flow_optimum.py [--check 300] [--cp_sat 40] [--models ...] [--gbps 1 10] [--startup_us 300]``

First lines: random small flows of up to 3 gradients. `flow.best_flow` and its bound are compared with every schedule of
messages in whole units of time, and with CP-SAT and up to 5 messages: the optimum itself, the optimum of schedules whose
pulls go in the order of the pushes, and, with up to 4 messages, that of schedules whose pulls are cut and merged anew. A
flow with an optimum below the bound or above the heuristic's step is printed and ends the program with 1.

Table: one training step of each built-in model, simulated across the barrier with one worker, one server and pieces that
are updated one by one. "bound" is what no messages are below, "optimal" how far its step is above it, "messages" how many
it sends, "s" the processor time of making its plan. The other columns are in % above `optimal`. "one size" is
`bytescheduler` with the best of all sizes of pieces from 64 KiB on (powers of the root of two) and one message at a time.
"one size, merged" is the same with small transfers merged, as `buckets` does it: the best that its sizes come to here. The
last rows are each column's mean and largest.

With --json the same as one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import random
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tests.ordering.chain_oracles import draw_chain
from tests.ordering.flow_oracles import all_flows, cp_sat_flow
from tfsched.ordering import Dag, Decision, get, register
from tfsched.ordering.buckets import _Facts as Facts
from tfsched.ordering.flow import best_flow
from tfsched.simulator import Cluster, Method, Workload, methods, profiles, simulate
from tfsched.simulator.pieces import decide

PLANNERS = (
    "p3", "bytescheduler", "prophet", "mg-wfbp", "dynacomm", "pace", "us-byte", "buckets", "one size", "one size, merged",
)  # fmt: skip


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compares planners with the bound of a step through parameter servers.")
    parser.add_argument("--check", type=int, default=300, help="random flows against all schedules")
    parser.add_argument("--cp_sat", type=int, default=40, help="random flows against CP-SAT")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", nargs="*", default=profiles.names())
    parser.add_argument("--planners", nargs="*", default=list(PLANNERS))
    parser.add_argument("--gbps", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--startup_us", type=float, default=300.0, help="of each message (ByteScheduler, section 4.1)")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def check(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """How often the heuristic and the bound met the optimum; an optimum outside of them ends the program."""
    draw = random.Random(args.seed)
    result: dict[str, dict[str, Any]] = {}
    for oracle, number in (("all schedules", args.check), ("CP-SAT", args.cp_sat)):
        counts = {"flows": number, "found": 0, "bound": 0, "same order": 0, "recut": 0}
        apart = 0.0
        for _ in range(number):
            exhaustive = oracle == "all schedules"
            horizon = draw.choice((3, 6, 10)) if exhaustive else draw.choice((8, 16, 28))
            flow = draw_chain(draw, 3, horizon, 3 if exhaustive else 8)
            startup, lag = (draw.randrange(4), draw.choice((0, 0, 1))) if exhaustive else (draw.randrange(2, 7), 0)
            found = best_flow(flow, startup, lag)
            if exhaustive:
                best = all_flows(flow, startup, found.makespan, lag)
                counts["same order"] += all_flows(flow, startup, best + 1, lag, same_order=True) == best
            else:
                best = cp_sat_flow(flow, startup, lag, most=5)
                counts["same order"] += cp_sat_flow(flow, startup, lag, most=5, same_order=True) == best
                recut = cp_sat_flow(flow, startup, lag, most=4, recut=True)
                counts["recut"] += recut >= best
                if recut < found.bound:
                    sys.exit(f"pulls that are cut anew take {recut}, the bound is {found.bound}: start-up {startup}, {flow}")
            if not found.bound <= best <= found.makespan:
                sys.exit(f"{oracle} finds {best}, best_flow {found}: start-up {startup}, lag {lag}, {flow}")
            counts["found"] += found.makespan == best
            counts["bound"] += found.bound == best
            apart = max(apart, found.makespan / best - 1)
        result[oracle] = {**counts, "largest": apart}
    return result


_plan: list[Decision] = []


@register("flow-optimum-plan")
def _given(dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0) -> Decision:
    return _plan[-1]


def step_us(name: str, workload: Workload, cluster: Cluster) -> float:
    """A method's step."""
    if name not in ("one size", "one size, merged"):
        return simulate(workload, cluster, methods()[name], iterations=2).median_us
    dag = workload.gradient_dag(cluster.bandwidth_bps, cluster.startup_us)
    order, facts = get("bytescheduler")(dag), Facts(dag, None)
    best_us = math.inf
    for size in (round(2 ** (k / 2)) for k in range(32, 66)):
        alone = Decision(order, partition_bytes=size, credit_bytes=1, policy="bytescheduler")
        _plan[:] = [facts.plan(size) if name.endswith("merged") else alone]
        method = Method(name, "flow-optimum-plan", view="gradients")
        best_us = min(best_us, simulate(workload, cluster, method, iterations=2).median_us)
    return best_us


def gaps(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row a model and bandwidth."""
    optimal = methods()["optimal"]
    for model in args.models:
        workload = Workload.from_layers(profiles.load(model))
        for gbps in args.gbps:
            cluster = Cluster(bandwidth_bps=gbps * 1e9, startup_us=args.startup_us, barrier=False, updates="piece")
            begun_s = time.process_time()
            plan = decide(workload, cluster, optimal, 0)
            assert plan is not None
            row: dict[str, Any] = {"model": model, "gbps": gbps, "plan_s": time.process_time() - begun_s}
            row.update(bound_us=plan.notes["bound_us"], messages=len(plan.messages))
            row["step_us"] = step_us("optimal", workload, cluster)
            row["optimal"] = 100 * (row["step_us"] / row["bound_us"] - 1)
            for name in args.planners:
                row[name] = 100 * (step_us(name, workload, cluster) / row["step_us"] - 1)
            yield row


def main() -> None:
    """Print the comparison and the table, each row once it is known."""
    args = parse_arguments()
    checked = check(args)
    if args.json:
        print(json.dumps({"checked": checked, "gaps": list(gaps(args))}, indent=1))
        return
    for oracle, one in checked.items():
        if one["flows"]:
            print(
                f"{oracle}: optimum found in {one['found']} of {one['flows']} flows, at most {100 * one['largest']:.1f} % "
                f"above it; the bound is the optimum in {one['bound']}, pulls in the order of pushes are as good in "
                f"{one['same order']}"
            )
    if args.cp_sat:
        print(f"CP-SAT: pulls cut anew are not better in {checked['CP-SAT']['recut']}")
    if not args.models:
        return
    print(f"| model | Gbit/s | bound | optimal | messages | s | {' | '.join(args.planners)} |")
    print("|---|---|---|---|---|---|" + "---|" * len(args.planners))
    columns = ("optimal", *args.planners)
    rows = []
    for row in gaps(args):
        rows.append(row)
        cells = [f"{row[name]:.2f} %" if name == "optimal" else f"{round(row[name], 1) + 0.0:.1f} %" for name in columns]
        print(
            f"| {row['model']} | {row['gbps']:g} | {row['bound_us'] / 1000:.1f} ms | {cells[0]} | {row['messages']} "
            f"| {row['plan_s']:.1f} | {' | '.join(cells[1:])} |",
            flush=True,
        )
    mean = [f"{math.fsum(row[name] for row in rows) / len(rows):.{1 + (name == 'optimal')}f} %" for name in columns]
    worst = [f"{max(row[name] for row in rows):.{1 + (name == 'optimal')}f} %" for name in columns]
    for title, cells in (("mean", mean), ("largest", worst)):
        print(f"| {title} | | | {cells[0]} | | | {' | '.join(cells[1:])} |")
    shorter = sum(all(row[name] > 0 for name in args.planners) for row in rows)
    print(f"\noptimal is shorter than every other in {shorter} of {len(rows)} rows")


if __name__ == "__main__":
    main()
