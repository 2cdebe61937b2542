"""Times the simulator on growing clusters: one step of a model's training, in processor time and memory.

Usage: python benchmarks/simulator_scale.py [--model resnet152] [--workers 16 64 256 1024] [--workers-per-server 16]
                                            [--method tio bytescheduler+barrier-crossing] [--gbps 25] [--warmup 1]

One process a row, so that the memory is the row's own (`peak`, with Python and the library). `messages` are those of all
simulated steps, warm-up included; `s a step` is processor time by steps, one core; `us a message` is what one costs from the
submission to the scheduler to its arrival; `growth` is of `s a step` over the row before, beside that of the messages.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tfsched.simulator import Cluster, Workload, methods, profiles, simulate  # noqa: E402

STEPS = 1  # measured


def one(args: argparse.Namespace) -> dict[str, float]:
    """Simulates the first worker count and method of `args`."""
    workload = Workload.from_layers(profiles.load(args.model))
    workers = args.workers[0]
    cluster = Cluster(
        workers=workers, servers=max(workers // args.workers_per_server, 1), bandwidth_bps=args.gbps * 1e9, startup_us=20
    )
    start_s = time.process_time()
    result = simulate(workload, cluster, methods()[args.method[0]], iterations=STEPS, warmup=args.warmup)
    return {
        "servers": cluster.servers,
        "messages": result.messages,
        "cpu_s": time.process_time() - start_s,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "step_us": result.median_us,
    }


def main() -> None:
    """Print the table, or as a child one row as JSON."""
    parser = argparse.ArgumentParser(description="Times the simulator on growing clusters.")
    parser.add_argument("--model", default="resnet152")
    parser.add_argument("--workers", type=int, nargs="+", default=[16, 64, 256, 1024])
    parser.add_argument("--workers-per-server", type=int, default=16)
    parser.add_argument("--method", nargs="+", default=["tio", "bytescheduler+barrier-crossing"])
    parser.add_argument("--gbps", type=float, default=25.0)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--row", action="store_true", help="print the first row as JSON")
    args = parser.parse_args()
    if args.row:
        print(json.dumps(one(args)))
        return
    print(f"{args.model}, {args.gbps:g} Gbit/s, {args.warmup + STEPS} steps a row\n")
    print("| method | workers | servers | messages | s a step | growth | us a message | peak GB | simulated step s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for method in args.method:
        before: dict[str, float] | None = None
        for workers in args.workers:
            command = [sys.executable, __file__, "--row", "--method", method, "--workers", str(workers)]
            command += ["--model", args.model, "--workers-per-server", str(args.workers_per_server)]
            command += ["--gbps", str(args.gbps), "--warmup", str(args.warmup)]
            row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
            growth = "-"
            if before is not None:
                growth = f"{row['cpu_s'] / before['cpu_s']:.1f} ({row['messages'] / before['messages']:.1f})"
            before = row
            step_s = row["cpu_s"] / (args.warmup + STEPS)
            print(
                f"| {method} | {workers:,} | {row['servers']} | {row['messages']:,} | {step_s:.2f} | {growth} "
                f"| {row['cpu_s'] * 1e6 / row['messages']:.1f} | {row['peak_bytes'] / 1e9:.2f} "
                f"| {row['step_us'] / 1e6:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
