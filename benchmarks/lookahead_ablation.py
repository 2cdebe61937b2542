"""What each step of `lookahead` brings, and DAGs made to be bad for it: ``python benchmarks/lookahead_ablation.py
[--instances 5]``.

First table: the corpus of ordering_corpus.py with recvs as in ordering_gap.py. Columns are parts of `lookahead`, each with
the whole budget: step 1 alone (the best of TIO, TAO, layer and largest tail first), with passes (step 2), with descent (step
3), annealing alone from a random order, annealing alone from the best of step 1, and all steps. Mean and largest makespan in
% above the best bound known (`exact.solve` for at most --time_limit_s), and how often the part's is the shortest of all
columns.

Second table: an adversary. It changes op times of small DAGs, one at a time, and keeps what makes `lookahead` longer against
the optimum. Its gap at the start and at the end, in %.

With --json the same as one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable
from typing import Any

from ordering_corpus import CORPUS, tangled  # first: it makes tfsched importable

from tfsched.ordering import Dag, _paths, get, list_schedule
from tfsched.ordering._fast_schedule import FastSchedule
from tfsched.ordering.exact import solve
from tfsched.ordering.lookahead import _Search


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compares lookahead's steps, and searches for DAGs that are bad for it.")
    parser.add_argument("--instances", type=int, default=5, help="DAGs per shape")
    parser.add_argument("--recvs", type=int, nargs="+", default=[8, 14, 20])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time_limit_s", type=float, default=20.0, help="for each optimum")
    parser.add_argument("--adversaries", type=int, default=5, help="DAGs that are made worse")
    parser.add_argument("--changes", type=int, default=40, help="of op times that an adversary tries")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def quick(fast: FastSchedule) -> list[list[int]]:
    """The orders of step 1."""
    tail = _paths.tails(fast.dag, fast.duration)
    orders = [sorted(fast.recvs, key=lambda i: (-tail[i], i))]
    return orders + [fast.order_of(get(name)(fast.dag)) for name in ("layer", "tio", "tao")]


def run(dag: Dag, seed: int, passes: bool, descend: bool, anneal: bool, shuffled: bool = False) -> int:
    """The makespan in ns of some of lookahead's steps; `shuffled` begins with a random order."""
    fast = FastSchedule(dag)
    search = _Search(fast, seed)
    orders = [random.Random(seed).sample(fast.recvs, len(fast.recvs))] if shuffled else quick(fast)
    if passes:
        search.start_from(iter(orders))
    else:
        for order in orders:
            search.try_order(order)
    if descend:
        search.descend()
    if anneal:
        search.anneal()
    return search.best


PARTS: dict[str, Callable[[Dag, int], int]] = {
    "step 1": lambda dag, seed: run(dag, seed, False, False, False),
    "with passes": lambda dag, seed: run(dag, seed, True, False, False),
    "with descent": lambda dag, seed: run(dag, seed, True, True, False),
    "annealing, random start": lambda dag, seed: run(dag, seed, False, False, True, shuffled=True),
    "annealing, start of step 1": lambda dag, seed: run(dag, seed, False, False, True),
    "all": lambda dag, seed: run(dag, seed, True, True, True),
}


def ablation(args: argparse.Namespace) -> list[dict[str, Any]]:
    """One row a part."""
    gaps: dict[str, list[float]] = {name: [] for name in PARTS}
    best_of = dict.fromkeys(PARTS, 0)
    for shapes in CORPUS.values():
        for shape, build in shapes.items():
            draw = random.Random(f"{args.seed} {shape}")
            for number in range(args.instances):
                dag = build(draw, args.recvs[number % len(args.recvs)])
                bound_ns = solve(dag, time_limit_s=args.time_limit_s).bound_us * 1000
                spans = {name: part(dag, args.seed) for name, part in PARTS.items()}
                for name, span in spans.items():
                    gaps[name].append(100 * (span / bound_ns - 1))
                    best_of[name] += span == min(spans.values())
    return [
        {"part": name, "dags": len(g), "mean": math.fsum(g) / len(g), "largest": max(g), "shortest": best_of[name]}
        for name, g in gaps.items()
    ]


def gap_of_lookahead(dag: Dag, time_limit_s: float) -> float:
    """In % above the optimum; 0 where none is proven, which an adversary then does not keep."""
    best = solve(dag, time_limit_s=time_limit_s)
    return 100 * (list_schedule(dag, get("lookahead")(dag)).makespan_us / best.makespan_us - 1) if best.proven else 0.0


def adversary(args: argparse.Namespace) -> list[dict[str, Any]]:
    """One row a DAG."""
    rows = []
    draw = random.Random(f"{args.seed} adversary")
    for number in range(args.adversaries):
        dag = tangled(draw, 8)
        first = gap = gap_of_lookahead(dag, args.time_limit_s)
        for _ in range(args.changes):
            ops = list(dag.ops)
            at = draw.randrange(len(ops))
            ops[at] = ops[at]._replace(time_us=float(draw.randrange(1, 60)))
            trial = Dag(list(dag.resources.values()), ops)
            trial_gap = gap_of_lookahead(trial, args.time_limit_s)
            if trial_gap >= gap:
                dag, gap = trial, trial_gap
        rows.append({"dag": number, "recvs": len(dag.recvs), "ops": len(dag.ops), "first": first, "found": gap})
    return rows


def main() -> None:
    """Print both tables."""
    args = parse_arguments()
    parts = ablation(args) if args.instances else []
    found = adversary(args) if args.adversaries else []
    if args.json:
        print(json.dumps({"parts": parts, "adversary": found}, indent=1))
        return
    if parts:
        print("| part | mean gap | largest gap | shortest of all |\n|---|---|---|---|")
    for row in parts:
        print(f"| {row['part']} | {row['mean']:.2f} % | {row['largest']:.1f} % | {row['shortest']}/{row['dags']} |")
    if found:
        print("\n| DAG | recvs | ops | gap at the start | gap that was found |\n|---|---|---|---|---|")
    for row in found:
        print(f"| {row['dag']} | {row['recvs']} | {row['ops']} | {row['first']:.1f} % | {row['found']:.1f} % |")


if __name__ == "__main__":
    main()
