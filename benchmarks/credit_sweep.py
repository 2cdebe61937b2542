"""Sweeps partition and credit over bandwidths: ``python benchmarks/credit_sweep.py [--bandwidths 100mbit,1gbit,...]``.

All cells of a bandwidth take turns block by block in one run, beside stock TensorFlow and the bounds, so the rows of a
table can be compared; two tables only by their ratios. The model is a perceptron of layers of 4 MB, with fewer layers on
slower links, so that a step takes a second or so; the batch makes computing take nearly as long as communicating.

Columns: "of lower" is the median step by the lower bound (docs/metrics.md), "x vanilla" stock TensorFlow's median by this.
The last table ranks the pairs over all bandwidths by the geometric mean of their median by the best one's: 1.000 would be
the best pair everywhere. The defaults in tfsched/bench/settings.py are to be chosen from it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tfsched.bench import SETTINGS, BenchConfig, run
from tfsched.bench.links import format_bandwidth, parse_bandwidth

LAYER_BYTES = 4_000_000
Pair = tuple[int, int]


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Sweeps partition and credit over bandwidths.")
    parser.add_argument("--bandwidths", default="100mbit,400mbit,1gbit,4gbit,10gbit")
    parser.add_argument("--partitions", default="250000,500000,1000000,2000000,0", help="bytes; 0: whole tensors")
    parser.add_argument("--credits", default="500000,1000000,2000000,4000000,8000000,16000000", help="bytes")
    parser.add_argument("--setting", default="bytescheduler", help="preset whose two options are swept")
    parser.add_argument("--phase", default="train", choices=["forward", "train"])
    parser.add_argument("--model", default="", help="instead of the perceptron by bandwidth")
    parser.add_argument("--batch", default="auto")
    parser.add_argument("--ps", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--link", default="auto")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--block", default="auto", help="steps timed together; more than 6 give the steady state")
    parser.add_argument("--json", default="", help="write all results to this file")
    return parser.parse_args()


def model_for(bandwidth_bps: float | None) -> str:
    """A perceptron whose variables need about 0.8 s on the link, of 4 to 24 layers."""
    seconds_a_layer = LAYER_BYTES * 8 / (bandwidth_bps or math.inf)
    layers = 24 if seconds_a_layer == 0 else round(0.8 / seconds_a_layer)
    return f"mlp{min(max(layers, 4), 24)}x1000"


def pairs_of(partitions: str, credits: str) -> list[Pair]:
    """All (partition, credit) that differ: a piece larger than the credit goes alone, whatever the credit is."""
    pairs = []
    for partition_bytes in map(int, partitions.split(",")):
        least_credit_bytes = min(partition_bytes, max(map(int, credits.split(","))))
        pairs += [(partition_bytes, credit) for credit in map(int, credits.split(",")) if credit >= least_credit_bytes]
    return pairs


def name_of(setting: str, pair: Pair) -> str:
    """The bench's name of a cell."""
    partition_bytes, credit_bytes = pair
    # 0 is the default, unless the preset has another.
    cuts = partition_bytes or "partition_bytes" in (SETTINGS[setting].options or {})
    return f"{setting}{f':partition_bytes={partition_bytes}' if cuts else ''}:credit_bytes={credit_bytes}"


def print_bandwidth(result: dict[str, Any], setting: str, pairs: list[Pair]) -> None:
    """One bandwidth's table."""
    bounds = result["bounds"]
    print(
        f"\n{format_bandwidth(result['bandwidth_bps'])}: {result['model']} {result['phase']}, batch {result['batch']}, "
        f"lower bound {bounds['lower_s']:.3f} s, vanilla {result['settings']['vanilla']['median_s']:.3f} s\n"
    )
    print("| partition | credit | median s | p95/p50 | of lower | x vanilla |")
    print("|---|---|---|---|---|---|")
    for pair in pairs:
        row = result["settings"][name_of(setting, pair)]
        print(
            f"| {pair[0] or 'whole':>9} | {pair[1]:>9} | {row['median_s']:.3f} | {row['p95_over_p50']:.2f} "
            f"| {row['bound_ratio']:.3f} | {row['ratio_to_vanilla']:.2f} |",
            flush=True,
        )
    for note in result["notes"]:
        print(f"note: {note}")


def ranked(results: list[dict[str, Any]], setting: str, pairs: list[Pair]) -> list[tuple[float, Pair]]:
    """(geometric mean over the bandwidths of median / best median, pair), best first."""
    logs = dict.fromkeys(pairs, 0.0)
    for result in results:
        medians_s = {pair: result["settings"][name_of(setting, pair)]["median_s"] for pair in pairs}
        best_s = min(medians_s.values())
        for pair, median_s in medians_s.items():
            logs[pair] += math.log(median_s / best_s) / len(results)
    return sorted((math.exp(log), pair) for pair, log in logs.items())


def main() -> None:
    """Print a table per bandwidth, then the ranking."""
    args = parse_arguments()
    pairs = pairs_of(args.partitions, args.credits)
    results = []
    for bandwidth in args.bandwidths.split(","):
        config = BenchConfig(
            models=[args.model or model_for(parse_bandwidth(bandwidth))],
            ps=args.ps,
            workers=args.workers,
            bandwidth=bandwidth,
            link=args.link,
            phase=args.phase,
            settings=["vanilla", *(name_of(args.setting, pair) for pair in pairs)],
            batch=args.batch,
            steps=args.steps,
            block=args.block,
            quiet=True,
        )
        results.append(run(config))
        print_bandwidth(results[-1], args.setting, pairs)
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")
    print(f"\nover {len(results)} bandwidth(s), median by the best pair's:\n")
    print("| partition | credit | by the best |")
    print("|---|---|---|")
    for mean, (partition_bytes, credit_bytes) in ranked(results, args.setting, pairs):
        print(f"| {partition_bytes or 'whole':>9} | {credit_bytes:>9} | {mean:.3f} |")


if __name__ == "__main__":
    main()
