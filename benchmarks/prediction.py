"""How well the simulator predicts the bench: median step times and their order, from a stock trace and measured bounds.

For each model, phase and bandwidth the bench measures the settings, and what computing alone and communicating alone take; a
trace of vanilla steps gives the graph and the ops' relative times. The simulator gets the trace, with op times scaled so
that computing alone takes what was measured, and slower by as much as was measured while its host sends or receives; and the
bandwidth at which the bytes take what was measured. Everything else
it has to know by itself: which order each setting makes, what overlaps and what waits.

    python benchmarks/prediction.py --models seq32,resnet50 --bandwidths 1gbit,500mbit --phases forward,train
    python benchmarks/prediction.py --models mlp24 --phases train --settings vanilla,p3,pace,us-byte:barrier=false
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import statistics
import sys
import tempfile
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))


def scaled(workload: Any, factor: float) -> Any:
    """The workload with its op times multiplied."""
    ops = tuple(dataclasses.replace(op, time_us=op.time_us * factor) for op in workload.ops)
    return dataclasses.replace(workload, ops=ops)


def measure(
    model: str, phase: str, bandwidth: str, options: argparse.Namespace, directory: str
) -> tuple[dict[str, Any], Any]:
    """The bench's result for the settings, and a trace of the vanilla steps that follow.

    Of the same run: which orders stock TensorFlow likes differs from one cluster to the next.
    """
    from tfsched.bench.command import BenchConfig, run
    from tfsched.commands.files import open_file
    from tfsched.tracing import load_trace

    path, trace = os.path.join(directory, "bench.json"), os.path.join(directory, "trace.json.gz")
    run(
        BenchConfig(
            models=[model],
            phase=phase,
            bandwidth=bandwidth,
            link=options.link,
            quiet=True,
            settings=options.settings.split(","),
            batch=options.batch,
            steps=options.steps,
            json=path,
            trace=trace,
            beside=True,
        )
    )
    with open(path, encoding="utf-8") as file:
        measured = json.load(file)
    return measured, load_trace(trace, open_file)


def predict(measured: dict[str, Any], trace: Any, iterations: int) -> dict[str, float]:
    """Setting -> predicted median step time in seconds."""
    from tfsched.bench.settings import find_settings
    from tfsched.bench.simulated import method_of
    from tfsched.simulator import Cluster, methods, simulate, workload_of_trace

    bounds = measured["bounds"]  # forward steps have one of communication, training steps one for each direction
    workload = workload_of_trace(trace, phase=measured["phase"])
    endless = Cluster(bandwidth_bps=1e15)
    alone_us = simulate(workload, endless, methods()["tio"], iterations=1, warmup=1).median_us
    workload = scaled(workload, bounds["compute_s"] * 1e6 / alone_us)
    pulled_bytes = sum(one.size_bytes for one in workload.parameters if one.pulled)
    cluster = Cluster(
        bandwidth_bps=pulled_bytes * 8 / bounds.get("pull_s", bounds["communication_s"]),
        contention=max(1.0, (bounds.get("beside_s") or 0.0) / bounds["compute_s"]),
    )
    return {
        setting.name: simulate(workload, cluster, method_of(setting), iterations=iterations, seed=1).median_us / 1e6
        for setting in find_settings(list(measured["settings"]))
    }


def same_order(measured: dict[str, float], predicted: dict[str, float], tie: float = 0.03) -> bool:
    """Whether no two settings that were measured further apart than `tie` are predicted the other way round."""
    pairs = itertools.permutations(measured, 2)
    return not any(measured[a] < measured[b] * (1 - tie) and predicted[a] > predicted[b] for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="seq32,resnet50,inception_v3")
    parser.add_argument("--bandwidths", default="1gbit,500mbit")
    parser.add_argument("--phases", default="forward,train")
    parser.add_argument("--settings", default="vanilla,tio,tao", help="settings of the bench")
    parser.add_argument("--steps", type=int, default=10, help="steps measured for each setting")
    parser.add_argument("--iterations", type=int, default=30, help="steps simulated for each setting")
    parser.add_argument("--link", default="auto")
    parser.add_argument("--batch", default="auto")
    parser.add_argument("--keep", default="", help="write measurements and traces to this directory")
    parser.add_argument("--again", default="", help="read them from this directory instead of measuring")
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()

    from rich.console import Console
    from rich.table import Table

    from tfsched.commands.files import open_file
    from tfsched.tracing import load_trace

    table = Table("model", "phase", "bandwidth", "setting", "measured s", "predicted s", "error", "same order")
    rows = []
    for model in arguments.models.split(","):
        for phase in arguments.phases.split(","):
            for bandwidth in arguments.bandwidths.split(","):
                stem = f"{model}-{phase}-{bandwidth}"
                if arguments.again:
                    with open(os.path.join(arguments.again, stem + ".json"), encoding="utf-8") as file:
                        measured = json.load(file)
                    trace = load_trace(os.path.join(arguments.again, stem + ".trace.json.gz"), open_file)
                else:
                    with tempfile.TemporaryDirectory() as directory:
                        measured, trace = measure(model, phase, bandwidth, arguments, directory)
                if arguments.keep and not arguments.again:
                    os.makedirs(arguments.keep, exist_ok=True)
                    with open(os.path.join(arguments.keep, stem + ".json"), "w", encoding="utf-8") as file:
                        json.dump(measured, file)
                    trace.save(os.path.join(arguments.keep, stem + ".trace.json.gz"), open_file)
                predicted = predict(measured, trace, arguments.iterations)
                medians = {name: one["median_s"] for name, one in measured["settings"].items()}
                ordered = same_order(medians, predicted)
                for name, median_s in medians.items():
                    error = predicted[name] / median_s - 1
                    rows.append(
                        {
                            "model": model,
                            "phase": phase,
                            "bandwidth": bandwidth,
                            "batch": measured["batch"],
                            "setting": name,
                            "measured_s": median_s,
                            "predicted_s": predicted[name],
                            "error": error,
                            "same_order": ordered,
                        }
                    )
                    table.add_row(
                        *(model, phase, bandwidth, name, f"{median_s:.3f}", f"{predicted[name]:.3f}"),
                        *(f"{100 * error:+.1f} %", "yes" if ordered else "no"),
                    )
    console = Console(width=110)
    console.print(table)
    errors = [abs(row["error"]) for row in rows]
    console.print(
        f"error: median {100 * statistics.median(errors):.1f} %, largest {100 * max(errors):.1f} %; "
        f"within 5 %: {sum(error <= 0.05 for error in errors)} of {len(errors)}"
    )
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
