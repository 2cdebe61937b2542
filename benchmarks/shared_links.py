"""Simulates two trainings whose hosts share links: what they lose to each other, and what control over both gains.

``python benchmarks/shared_links.py [--jobs resnet50+resnet50 ...] [--gbps 10 25] [--methods vanilla ...] [--share servers]``

Each job has one server and `--workers` workers, and every link `--gbps`. With ``--share servers`` the jobs' servers live on
one host, with ``--share workers`` their workers do (with `--architecture allreduce` there are no servers). The speed of a
job is the time of a step alone over the time of a step beside the other. Columns, in % and in the mean of both jobs, with
the slower job's in parentheses:

* today: each job orders its own transfers and knows nothing of the other; the mean over `--shifts` times at which the second
  job may begin, spread over a step of the slower one.
* worst: the least of these.
* shifted: the best of these, which somebody chooses who begins the second job at that time.
* halves: each job hands over half of the link's bandwidth at most (`tfsched.configure(rate_bps=...)`).
* intense first: what the job sends that computes longer for each second of its communication goes before what the other
  sends, on every link (Crux: GPU intensity).
* other first: the other way round.
* bound: no control can have more (`Jobs.bound`).

With ``--straggler_scale 0.03`` a worker's compute time varies from step to step, by a standard deviation of 3 %; shifts are
then those that are best without it.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tfsched.simulator import Beside, Cluster, Control, Job, Jobs, Workload, methods, profiles

COLUMNS = ("today", "worst", "shifted", "halves", "intense first", "other first")


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Simulates two trainings whose hosts share links.")
    parser.add_argument("--jobs", nargs="+", default=["resnet50+resnet50", "vgg16+resnet50", "transformer+resnet50"])
    parser.add_argument("--gbps", type=float, nargs="+", default=[10.0, 25.0])
    parser.add_argument("--methods", nargs="+", default=["vanilla", "bytescheduler", "bytescheduler+barrier-crossing"])
    parser.add_argument("--share", default="servers", choices=["servers", "workers", "all"])
    parser.add_argument("--architecture", default="ps", choices=["ps", "allreduce"])
    parser.add_argument("--workers", type=int, default=1, help="of each job")
    parser.add_argument("--startup_us", type=float, default=50.0, help="of each message")
    parser.add_argument("--straggler_scale", type=float, default=0.0)
    parser.add_argument("--shifts", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=20, help="steps of the slower job that count")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def jobs_of(args: argparse.Namespace, models: list[str], gbps: float, method: str, scale: float) -> Jobs:
    """The jobs, planned and simulated alone."""
    cluster = Cluster(
        workers=args.workers,
        architecture=args.architecture,
        bandwidth_bps=gbps * 1e9,
        startup_us=args.startup_us,
        straggler="normal" if scale else "none",
        straggler_scale=scale,
    )
    jobs = [
        Job(f"{model}.{i}", Workload.from_layers(profiles.load(model)), cluster, methods()[method], args.share)
        for i, model in enumerate(models)
    ]
    return Jobs(jobs, iterations=args.iterations, seed=args.seed)


def shifts_us(jobs: Jobs, count: int) -> list[float]:
    """Times at which the second job may begin."""
    slowest_us = max(alone.iteration_us for alone in jobs.alone)
    return [slowest_us * k / count for k in range(count)]


def row_of(args: argparse.Namespace, models: list[str], gbps: float, method: str) -> dict[str, Any]:
    """All columns of two jobs on one link, under one method."""
    jobs = jobs_of(args, models, gbps, method, args.straggler_scale)
    steady = jobs_of(args, models, gbps, method, 0.0) if args.straggler_scale else jobs

    def shifted(us: float, of: Jobs = jobs) -> Beside:
        return of.beside([Control(), Control(start_us=us)])

    today = [shifted(us) for us in shifts_us(jobs, args.shifts)]
    best_us = max(shifts_us(steady, args.shifts), key=lambda us: shifted(us, steady).mean_speed)
    receivers = args.workers if args.architecture == "ps" else max(args.workers - 1, 1)
    half = round(gbps * 1e9 / 2 / receivers)
    first = jobs.intense_first()
    found = {
        "worst": min(today, key=lambda beside: beside.mean_speed),
        "shifted": shifted(best_us),
        "halves": jobs.beside([Control(rate_bps=half), Control(rate_bps=half)]),
        "intense first": jobs.beside(first),
        "other first": jobs.beside(first[::-1]),
    }
    row: dict[str, Any] = {
        "jobs": "+".join(models),
        "gbps": gbps,
        "method": method,
        "alone_us": [alone.iteration_us for alone in jobs.alone],
        "today_us": [mean([beside.iteration_us[job.name] for beside in today]) for job in jobs.jobs],
        "intensity": jobs.intensity(),
        "bound": jobs.bound(),
        "today": mean([beside.mean_speed for beside in today]),
        "today least": mean([min(beside.speed.values()) for beside in today]),
    }
    for name, beside in found.items():
        row[name], row[f"{name} least"] = beside.mean_speed, min(beside.speed.values())
    return row


def mean(values: list[float]) -> float:
    """The mean."""
    return math.fsum(values) / len(values)


def main() -> None:
    """Print the table, each row once it is known."""
    args = parse_arguments()
    rows = []
    if not args.json:
        print(f"| jobs | Gbit/s | method | alone, ms | today, ms | {' | '.join(COLUMNS)} | bound |")
        print("|" + "---|" * (len(COLUMNS) + 6))
    for text in args.jobs:
        for gbps in args.gbps:
            for method in args.methods:
                row = row_of(args, text.split("+"), gbps, method)
                rows.append(row)
                if args.json:
                    continue
                times = " | ".join(", ".join(f"{us / 1e3:.0f}" for us in row[name]) for name in ("alone_us", "today_us"))
                cells = " | ".join(f"{100 * row[name]:.0f} ({100 * row[name + ' least']:.0f})" for name in COLUMNS)
                print(f"| {text} | {gbps:g} | {method} | {times} | {cells} | {100 * row['bound']:.0f} |", flush=True)
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    cells = " | ".join(f"{100 * mean([row[name] for row in rows]):.0f}" for name in COLUMNS)
    print(f"| mean | | | | | {cells} | {100 * mean([row['bound'] for row in rows]):.0f} |")


if __name__ == "__main__":
    main()
