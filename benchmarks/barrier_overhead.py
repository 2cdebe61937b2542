"""What crossing the barrier costs a step by itself: ``python benchmarks/barrier_overhead.py [--variables 1,16,64,256]``.

A chain of 1x1 layers, all tasks on loopback: next to nothing to send or to compute, so what is left of a step is its fixed
cost. Both settings take turns block by block in one run, and a block ends when its last update is applied. With more than 6
steps in a block a step's time is that of its steady state, to which the wait for the last update does not belong.

Columns: median µs of a step with the barrier kept and crossed, what crossing adds, and that by variable. The added cost is
what has to be saved by overlapping before crossing pays.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tfsched.bench import BenchConfig, run


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="What crossing the barrier costs a step by itself.")
    parser.add_argument("--variables", default="1,16,64,256")
    parser.add_argument("--kept", default="bytescheduler", help="setting that keeps the barrier")
    parser.add_argument("--crossed", default="bytescheduler+barrier-crossing", help="setting that crosses it")
    parser.add_argument("--ps", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--block", type=int, default=50, help="steps timed together")
    parser.add_argument("--blocks", type=int, default=10)
    args = parser.parse_args()
    print(f"µs a step, median of {args.blocks} blocks of {args.block} steps; {args.ps} PS, {args.workers} worker(s)\n")
    print("| variables | kept | crossed | added | added a variable |")
    print("|---|---|---|---|---|")
    for variables in map(int, args.variables.split(",")):
        config = BenchConfig(
            models=[f"mlp{variables}x1"],
            ps=args.ps,
            workers=args.workers,
            link="none",
            phase="train",
            settings=[args.kept, args.crossed],
            batch=1,
            steps=args.block * args.blocks,
            warmup=20,
            block=args.block,
            quiet=True,
        )
        settings = run(config)["settings"]
        kept_us, crossed_us = (settings[name]["median_s"] * 1e6 for name in (args.kept, args.crossed))
        added_us = crossed_us - kept_us
        print(
            f"| {variables} | {kept_us:,.0f} | {crossed_us:,.0f} | {added_us:,.0f} | {added_us / variables:,.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
