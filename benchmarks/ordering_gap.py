"""How far each method is from the optimum: ``python benchmarks/ordering_gap.py [--instances 20] [--recvs 8 14 20]``.

First table: the list schedule of whole transfers under each ordering, over the corpus of ordering_corpus.py, against the
proven optimum of exact.solve (against its bound where the time limit ran out; their number is printed). Mean and worst
gap in %, and how often the ordering is optimal. "vs" compares with the better of TIO and TAO on the same DAG: how often
shorter and longer.

Second table: one training step (back-propagation, gradients, next forward pass) of built-in models with a start-up cost
for each message, under the planners, that also cut and merge. Their bound is the best preemptive schedule without
start-up, which no method can reach; so compare rows. PACE's plan is for a wire that preempts; beside it are two ways to send
it on one that does not: in the pieces of its schedule, and in even ones of the size that it names. 0 % would be as fast
as with a network that has no cost per message.

Third table: what is left if times are wrong. Orders are made from the times of the DAG and run under times multiplied by
lognormal noise, the mean step relative to TAO's under the same noise.

With --json the same as one JSON object. Same seed, same numbers, as far as the optimum was proven.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from typing import Any

from ordering_corpus import CORPUS  # first: it makes tfsched importable

from tfsched.ordering import Dag, Decision, evaluate, get, list_schedule
from tfsched.ordering._fast_schedule import FastSchedule
from tfsched.ordering.exact import solve
from tfsched.ordering.layers import training_dag
from tfsched.simulator import profiles

ORDERINGS = ("random", "fifo", "layer", "tio", "tao", "pace", "prophet", "lookahead", "exact")
NOISY = ("tio", "tao", "lookahead")
PLANNERS = ("fifo", "layer", "tio", "tao", "lookahead", "p3", "bytescheduler", "prophet", "mg-wfbp", "pace", "buckets")
# PACE on a wire that does not preempt.
PACE_IN_PIECES = {
    "pace, its own pieces": lambda plan: Decision(plan, messages=plan.messages),
    "pace, even pieces": lambda plan: Decision(
        plan, groups=plan.groups, partition_bytes=plan.partition_bytes, credit_bytes=1, policy="bytescheduler"
    ),
}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measures how far orderings are from the optimum.")
    parser.add_argument("--instances", type=int, default=20, help="DAGs per shape")
    parser.add_argument("--recvs", type=int, nargs="+", default=[8, 14, 20])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time_limit_s", type=float, default=60.0, help="for each optimum")
    parser.add_argument("--orderings", nargs="*", default=list(ORDERINGS))
    parser.add_argument("--planners", nargs="*", default=list(PLANNERS))
    parser.add_argument("--models", nargs="*", default=["resnet50", "inception_v3", "vgg16", "transformer"])
    parser.add_argument("--gbps", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--startup_us", type=float, default=300.0, help="of each message (ByteScheduler, section 4.1)")
    parser.add_argument("--noise", type=float, nargs="*", default=[0.05, 0.1, 0.3], help="sigmas of the log of times")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def measure(dag: Dag, args: argparse.Namespace) -> dict[str, Any]:
    """The optimum of one DAG, every ordering's makespan, and for some their makespans under noise."""
    begun_s = time.perf_counter()
    best = solve(dag, time_limit_s=args.time_limit_s)
    result: dict[str, Any] = {"proven": best.proven, "bound_us": best.bound_us, "solve_s": time.perf_counter() - begun_s}
    orders: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys([*args.orderings, *NOISY]):
        if name == "exact":  # its priorities by start, without a second search
            priorities = {op.name: best.start_us[op.name] for op in dag.recvs}
        else:
            priorities = get(name)(dag, seed=args.seed)
        orders[name] = priorities
        result[name] = list_schedule(dag, priorities).makespan_us
    draw = random.Random(args.seed)
    own_us = dict(zip((op.name for op in dag.ops), dag.times_us(), strict=True))
    for sigma in args.noise:
        disturbed = [{op: t * draw.lognormvariate(0.0, sigma) for op, t in own_us.items()} for _ in range(10)]
        result[f"noise {sigma:g}"] = {
            name: math.fsum(list_schedule(dag, orders[name], times).makespan_us for times in disturbed) for name in NOISY
        }
    return result


def noise(everything: list[dict[str, Any]], args: argparse.Namespace) -> list[dict[str, Any]]:
    """One row a sigma: each ordering's mean step by TAO's, and in how many DAGs it is the longer one."""
    rows = []
    for sigma in args.noise:
        row: dict[str, Any] = {"sigma": sigma}
        for name in NOISY:
            by_tao = [one[f"noise {sigma:g}"][name] / one[f"noise {sigma:g}"]["tao"] for one in everything]
            row[name] = math.fsum(by_tao) / len(by_tao)
            row[f"{name} longer"] = sum(ratio > 1 + 1e-9 for ratio in by_tao)
        rows.append(row)
    return rows


def gaps(args: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Kind of DAG -> one measurement a DAG."""
    result: dict[str, list[dict[str, Any]]] = {}
    for kind, shapes in CORPUS.items():
        for shape, build in shapes.items():
            # A string seeds the same in every process, and a shape's dags do not change with the others.
            draw = random.Random(f"{args.seed} {shape}")
            for number in range(args.instances):
                dag = build(draw, args.recvs[number % len(args.recvs)])
                result.setdefault(kind, []).append({"shape": shape, **measure(dag, args)})
    return result


def table(measured: dict[str, list[dict[str, Any]]], args: argparse.Namespace) -> list[dict[str, Any]]:
    """One row an ordering and kind, and one of all kinds."""
    rows = []
    kinds = {**measured, "all": [one for many in measured.values() for one in many]}
    for name in args.orderings:
        for kind, many in kinds.items():
            gap = [100 * (one[name] / one["bound_us"] - 1) for one in many]
            best = [min(one["tio"], one["tao"]) for one in many]
            rows.append(
                {
                    "ordering": name,
                    "dags": kind,
                    "number": len(many),
                    "mean_gap_percent": math.fsum(gap) / len(gap),
                    "worst_gap_percent": max(gap),
                    "optimal": sum(g < 1e-6 for g in gap),
                    "shorter": sum(one[name] < b - 1e-6 for one, b in zip(many, best, strict=True)),
                    "longer": sum(one[name] > b + 1e-6 for one, b in zip(many, best, strict=True)),
                }
            )
    return rows


def planners(args: argparse.Namespace) -> list[dict[str, Any]]:
    """One row a model and bandwidth: each planner's distance from the bound in %, and its messages."""
    rows = []
    for model in args.models:
        for gbps in args.gbps:
            layers = profiles.load(model)
            dag = training_dag(layers, gbps * 1e9, args.startup_us)
            bound = FastSchedule(training_dag(layers, gbps * 1e9)).lower_bound() / 1000
            row: dict[str, Any] = {"model": model, "gbps": gbps, "bound_us": bound}
            for name in args.planners:
                plan = get(name)(dag)
                row[name] = 100 * (evaluate(dag, plan).makespan_us / bound - 1)
                if name == "pace":
                    for way, cut in PACE_IN_PIECES.items():
                        row[way] = 100 * (evaluate(dag, cut(plan)).makespan_us / bound - 1)
            rows.append(row)
    return rows


def main() -> None:
    """Print both tables."""
    args = parse_arguments()
    measured = gaps(args) if args.orderings else {}
    rows = table(measured, args) if measured else []
    plans = planners(args) if args.planners and args.models else []
    everything = [one for many in measured.values() for one in many]
    summary = {
        "dags": len(everything),
        "proven": sum(one["proven"] for one in everything),
        "longest_proof_s": max((one["solve_s"] for one in everything), default=0.0),
    }
    noisy = noise(everything, args) if everything else []
    if args.json:
        print(json.dumps({"summary": summary, "orderings": rows, "planners": plans, "noise": noisy}, indent=1))
        return
    if rows:
        print("| ordering | DAGs | mean gap | worst gap | optimal | shorter than the best of TIO, TAO | longer |")
        print("|---|---|---|---|---|---|---|")
    for row in rows:
        number = row["number"]
        print(
            f"| {row['ordering']} | {row['dags']} | {row['mean_gap_percent']:.2f} % | {row['worst_gap_percent']:.1f} % "
            f"| {row['optimal']}/{number} | {row['shorter']}/{number} | {row['longer']}/{number} |"
        )
    if rows:
        print(
            f"\n{summary['proven']} of {summary['dags']} optima proven, "
            f"the longest proof took {summary['longest_proof_s']:.1f} s.\n"
        )
    columns = [name for name in (plans[0] if plans else ()) if name not in ("model", "gbps", "bound_us")]
    if plans:
        print(f"| model | Gbit/s | bound | {' | '.join(columns)} |")
        print("|---|---|---|" + "---|" * len(columns))
    for row in plans:
        cells = " | ".join(f"{row[name]:.1f} %" for name in columns)
        print(f"| {row['model']} | {row['gbps']:g} | {row['bound_us'] / 1000:.1f} ms | {cells} |")
    if noisy:
        print(f"\n| sigma | {' | '.join(NOISY)} | lookahead longer than TAO |\n|---|{'---|' * (len(NOISY) + 1)}")
    for row in noisy:
        cells = " | ".join(f"{row[name]:.3f}" for name in NOISY)
        print(f"| {row['sigma']:g} | {cells} | {row['lookahead longer']}/{len(everything)} |")


if __name__ == "__main__":
    main()
