"""From which size on chunks pay: ``python benchmarks/partition_break_even.py --per_chunk_us 60``.

Simulated training across the barrier, one server and one worker whose computing takes as long as communicating, at 1, 10 and
25 Gbit/s. Each chunk holds its connection for `--per_chunk_us` before it moves, which `partition_cost.py` measures (*per
chunk* of its second table, the row of the size in question); a whole tensor is one chunk. The credit is that of two chunks.

Columns: the step with whole tensors; the smallest size of chunks with which it is no longer, below which cutting costs more
than it brings; the size with which it is shortest, and by how much that is shorter than whole.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tfsched.simulator import Cluster, Workload, methods, profiles, simulate

SIZES = [4096 << power for power in range(14)]  # 4 KiB to 32 MiB


def steps_us(model: str, gbps: float, per_chunk_us: float, sizes: list[int]) -> dict[int, float]:
    """The median simulated step by size of chunks; 0 is whole tensors."""
    workload = Workload.from_layers(profiles.load(model))
    pushed_us = sum(parameter.size_bytes for parameter in workload.parameters) * 8 / gbps / 1e3
    cluster = Cluster(
        bandwidth_bps=gbps * 1e9,
        startup_us=per_chunk_us,
        barrier=False,
        updates="piece",
        compute_scale=workload.compute_us / pushed_us,
    )
    preset = methods()["bytescheduler+barrier-crossing"]
    times = {}
    for size in [0, *sizes]:
        method = dataclasses.replace(preset, partition_bytes=size, credit_bytes=2 * size or preset.credit_bytes)
        times[size] = simulate(workload, cluster, method, iterations=10, warmup=3).median_us
    return times


def break_even(times: dict[int, float]) -> int | None:
    """The smallest size from which on all sizes up to the best one are no slower than whole tensors; None: there is none."""
    best = min(times, key=lambda size: times[size])
    found = None
    for size in sorted(size for size in times if 0 < size <= best)[::-1]:
        if times[size] > times[0]:
            break
        found = size
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="From which size on chunks pay.")
    parser.add_argument("--models", default="resnet50,inception_v3,vgg16,mlp24")
    parser.add_argument("--gbps", default="1,10,25")
    parser.add_argument("--per_chunk_us", type=float, required=True)
    args = parser.parse_args()
    print(f"simulated, {args.per_chunk_us:g} µs a chunk, computing as long as communicating\n")
    print("| model | Gbit/s | step, whole | chunks pay from | best chunks | step | gain |")
    print("|---|---|---|---|---|---|---|")
    for model in args.models.split(","):
        for gbps in map(float, args.gbps.split(",")):
            times = steps_us(model, gbps, args.per_chunk_us, SIZES)
            best, least = min(times, key=lambda size: times[size]), break_even(times)
            print(
                f"| {model} | {gbps:g} | {times[0] / 1e3:,.1f} ms | {f'{least:,}' if least else 'never'} | "
                f"{f'{best:,}' if best else 'whole'} | {times[best] / 1e3:,.1f} ms | {times[0] / times[best]:.2f}x |",
                flush=True,
            )


if __name__ == "__main__":
    main()
