"""The optimum of a training step's chain, its proof by other means, and each planner's gap to it.

``python benchmarks/chain_optimum.py [--check 2000] [--cp_sat 300] [--models ...] [--gbps 1 10] [--startup_us 300]``

First line: random small chains on which `chain.best_cuts` was compared with every schedule in whole units of time (n up to
4), with all pairs of cuts (n up to 6) and with CP-SAT (n up to 5). A chain on which they differ is printed and ends the
program with 1.

Table: one training step of each built-in model (`layers.training_dag`). The optimum is that of `optimal`, "messages" how
many it sends, "s" the processor time of making its plan. Each planner's column is its makespan under `evaluate` in % above
the optimum. PACE's plan is sent in its own pieces, which is what a wire that cannot preempt is given. "dear" sends
all-reduces as two halves with the best of its buffer sizes (powers of two from 1 MB, and 25 MB): another problem, whose
optimum may be lower. The last rows are each column's mean and largest.

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
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tests.ordering.chain_oracles import all_cuts, all_schedules, cp_sat, draw_chain
from tfsched.ordering import Dag, Decision, evaluate, get
from tfsched.ordering.chain import best_cuts
from tfsched.ordering.dear import in_halves
from tfsched.ordering.layers import training_dag
from tfsched.simulator import profiles

PLANNERS = (
    "fifo", "layer", "tao", "lookahead", "p3", "bytescheduler", "prophet", "mg-wfbp", "dynacomm", "pace", "us-byte",
    "buckets", "dear",
)  # fmt: skip
BUFFERS = (*(1 << k for k in range(20, 30)), 25_000_000)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compares planners with the optimum of a training step's chain.")
    parser.add_argument("--check", type=int, default=2000, help="random chains against all schedules, and against all cuts")
    parser.add_argument("--cp_sat", type=int, default=300, help="random chains against CP-SAT")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", nargs="*", default=profiles.names())
    parser.add_argument("--planners", nargs="*", default=list(PLANNERS))
    parser.add_argument("--gbps", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--startup_us", type=float, default=300.0, help="of each message (ByteScheduler, section 4.1)")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def check(args: argparse.Namespace) -> dict[str, int]:
    """How many chains were compared; a difference ends the program."""
    draw = random.Random(args.seed)
    oracles = {
        "all schedules": (all_schedules, args.check, 4, 3),
        "all cuts": (all_cuts, args.check, 6, 20),
        "CP-SAT": (cp_sat, args.cp_sat, 5, 9),
    }
    for name, (oracle, number, most, longest) in oracles.items():
        for _ in range(number):
            chain = draw_chain(draw, most, draw.choice((4, 8, 14)) * (1 if longest < 9 else 3), longest)
            startup = draw.randrange(4)
            found, expected = best_cuts(chain, startup).makespan, oracle(chain, startup)
            if found != expected:
                sys.exit(f"{name} finds {expected} and best_cuts {found}: start-up {startup}, {chain}")
    return {name: number for name, (_, number, _, _) in oracles.items()}


def span_us(name: str, dag: Dag) -> float:
    """A planner's makespan on a wire that does not preempt."""
    if name == "dear":
        return min(evaluate(*in_halves(dag, size)).makespan_us for size in BUFFERS)
    plan = get(name)(dag)
    if name == "pace":
        plan = Decision(plan, messages=plan.messages)
    return evaluate(dag, plan).makespan_us


def gaps(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row a model and bandwidth."""
    for model in args.models:
        for gbps in args.gbps:
            dag = training_dag(profiles.load(model), gbps * 1e9, args.startup_us)
            begun_s = time.process_time()
            best = get("optimal")(dag)
            row: dict[str, Any] = {"model": model, "gbps": gbps, "plan_s": time.process_time() - begun_s}
            row.update(proven=best.notes["proven"], optimum_us=best.notes["makespan_us"], messages=len(best.messages))
            for name in args.planners:
                row[name] = 100 * (span_us(name, dag) / row["optimum_us"] - 1)
            yield row


def main() -> None:
    """Print the comparison and the table, each row once it is known."""
    args = parse_arguments()
    checked = check(args)
    if args.json:
        print(json.dumps({"checked": checked, "gaps": list(gaps(args))}, indent=1))
        return
    if any(checked.values()):
        print("equal to " + ", ".join(f"{name} on {number} chains" for name, number in checked.items()) + "\n", flush=True)
    if not args.models:
        return
    print(f"| model | Gbit/s | optimum | messages | s | {' | '.join(args.planners)} |")
    print("|---|---|---|---|---|" + "---|" * len(args.planners))
    rows = []
    for row in gaps(args):
        rows.append(row)
        # Times are whole ns and bytes whole: what is below 0 by a millionth is 0.
        cells = " | ".join(f"{round(row[name], 1) + 0.0:.1f} %" for name in args.planners)
        print(
            f"| {row['model']} | {row['gbps']:g} | {row['optimum_us'] / 1000:.1f} ms | {row['messages']} "
            f"| {row['plan_s']:.2f} | {cells} |",
            flush=True,
        )
    mean = " | ".join(f"{math.fsum(row[name] for row in rows) / len(rows):.1f} %" for name in args.planners)
    worst = " | ".join(f"{max(row[name] for row in rows):.1f} %" for name in args.planners)
    print(f"| mean | | | | | {mean} |\n| largest | | | | | {worst} |")
    print(f"\n{sum(row['proven'] for row in rows)} of {len(rows)} optima proven")


if __name__ == "__main__":
    main()
