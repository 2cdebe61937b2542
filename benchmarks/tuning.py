"""Counts the samples that searches need (ByteScheduler, figure 14): ``python benchmarks/tuning.py``.

Each cell is the median (in brackets the largest) number of samples, over the seeds, until a search has proposed a setting
whose step takes at most `within` more than that of the best point of a 6 x 6 grid over partition and credit; "inf" where it
takes more than 100. The policy is bytescheduler. Bayesian and random search propose any rounded values between the grid's
bounds, grid search the grid's points in random order; each setting is measured once. "near" says how many of the grid's 36
points are within that, "worst / best" how much there is to find.

Steps are simulated: the barrier crossed, messages with a start-up cost of 300 µs (ByteScheduler, section 4.1), credit back
100 µs after the last byte. Noise is relative, drawn from the seed, and put on what the search is told; whether a setting is
good is judged without it. What random and grid search propose does not depend on it. Same seeds, same table.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import pathlib
import statistics
import sys
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tfsched.simulator import Cluster, Workload, methods, profiles, simulate
from tfsched.tuning import Setting, Space, make_search
from tfsched.tuning.grid import POINTS
from tfsched.tuning.space import spaced

ARCHITECTURES = {"ps": "servers", "allreduce": "all-reduce"}
SPACE = Space(policies=("bytescheduler",))
MOST = 100  # samples, after which a search counts as not having found it


class Steps:
    """Simulated seconds of a step by setting, each simulated once."""

    def __init__(self, model: str, gbps: float, architecture: str, args: argparse.Namespace):
        self._workload = Workload.from_layers(profiles.load(model, flops=args.flops))
        self._cluster = Cluster(
            workers=args.workers,
            servers=args.workers,
            architecture=architecture,
            bandwidth_bps=gbps * 1e9,
            placement="balanced",
            startup_us=args.startup_us,
            release_us=100,
            updates="piece",
            barrier=False,
        )
        self._known: dict[Setting, float] = {}

    def __call__(self, setting: Setting) -> float:
        if setting not in self._known:
            method = dataclasses.replace(methods()["bytescheduler"], **setting._asdict())
            result = simulate(self._workload, self._cluster, method, iterations=3, warmup=2)
            self._known[setting] = result.median_us / 1e6
        return self._known[setting]


def samples_until(name: str, steps: Steps, target_s: float, noise: float, seed: int) -> float:
    """How many samples the search takes until one is of a setting within the target; infinity if it ends before."""
    search, draw = make_search(name, SPACE, seed), np.random.default_rng((seed, 1))
    for number in range(1, MOST + 1):
        proposal = search.ask()
        if proposal is None:
            break
        seconds = steps(proposal.setting)
        if seconds <= target_s:
            return number
        search.tell(proposal.setting, seconds * math.exp(noise * draw.standard_normal()))
    return math.inf


def measure(steps: Steps, within: float, noises: list[float], seeds: int) -> dict[str, Any]:
    """One row: how much there is to find, and the samples of each seed by column."""
    grid = SPACE.product(spaced(SPACE.partitions, POINTS), spaced(SPACE.credits, POINTS))
    best_s, worst_s = min(map(steps, grid)), max(map(steps, grid))
    target_s = (1 + within) * best_s
    row: dict[str, Any] = {"within": within, "best_s": best_s, "worst_by_best": worst_s / best_s}
    row["near"] = sum(steps(setting) <= target_s for setting in grid)
    for column, (name, noise) in columns_of(noises).items():
        row[column] = [samples_until(name, steps, target_s, noise, seed) for seed in range(seeds)]
    return row


def columns_of(noises: list[float]) -> dict[str, tuple[str, float]]:
    """Column -> search and noise."""
    bayesian = {f"bayesian, noise {noise:.0%}": ("bayesian", noise) for noise in noises}
    return {**bayesian, "random": ("random", 0.0), "grid": ("grid", 0.0)}


def main() -> None:
    """Print the table row by row."""
    parser = argparse.ArgumentParser(description="Counts the samples that searches need.")
    parser.add_argument("--models", nargs="+", default=["vgg16", "resnet50"])
    parser.add_argument("--gbps", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--within", type=float, nargs="+", default=[0.05, 0.01])
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.05])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--workers", type=int, default=2, help="and as many servers")
    parser.add_argument("--flops", type=float, default=profiles.FLOPS_PER_S)
    parser.add_argument("--startup_us", type=float, default=300.0)
    parser.add_argument("--json", default="", help="write all counts to this file")
    args = parser.parse_args()
    columns = columns_of(args.noise)
    print(f"| model | Gbit/s | | best step | worst / best | within | near | {' | '.join(columns)} |")
    print("|---|---|---|---|---|---|---|" + "---|" * len(columns), flush=True)
    everything = []
    for within in args.within:
        for model, gbps, architecture in itertools.product(args.models, args.gbps, ARCHITECTURES):
            row = measure(Steps(model, gbps, architecture, args), within, args.noise, args.seeds)
            cells = " | ".join(f"{statistics.median(row[name]):g} ({max(row[name]):g})" for name in columns)
            print(
                f"| {model} | {gbps:g} | {ARCHITECTURES[architecture]} | {row['best_s']:.3f} s "
                f"| {row['worst_by_best']:.2f} | {within:.0%} | {row['near']} | {cells} |",
                flush=True,
            )
            everything.append({"model": model, "gbps": gbps, "architecture": architecture, **row})
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(everything, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
