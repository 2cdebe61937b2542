"""How well the simulator predicts all-reduces: median steps of `tfsched bench --api mirrored` beside simulated ones.

Of each measurement the simulator gets how long computing alone takes and the bandwidth; what each layer takes of it is from
the built-in profile, by operations. The simulator's all-reduce is the algorithm that runs (architecture "allreduce").

    python benchmarks/prediction_mirrored.py --models mlp24,resnet50 --workers 2,3 --settings tio,p3:barrier=false,pace
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

# Of a link's nominal bandwidth, after TCP's, IP's and Ethernet's headers.
PAYLOAD = 1448 / 1514


def measure(model: str, workers: int, arguments: argparse.Namespace, path: str) -> dict[str, Any]:
    """The bench's result."""
    from tfsched.bench.command import BenchConfig, run

    run(
        BenchConfig(
            models=[model],
            api="mirrored",
            ps=0,
            workers=workers,
            phase="train",
            bandwidth=arguments.bandwidth,
            link=arguments.link,
            quiet=True,
            settings=arguments.settings.split(","),
            batch=arguments.batch,
            steps=arguments.steps,
            json=path,
        )
    )
    with open(path, encoding="utf-8") as file:
        result: dict[str, Any] = json.load(file)
    return result


def predict(measured: dict[str, Any], iterations: int) -> dict[str, float]:
    """Setting -> predicted median step time in seconds."""
    from tfsched.bench.settings import find_settings
    from tfsched.bench.simulated import method_of
    from tfsched.ordering.layers import LayerTable
    from tfsched.simulator import Cluster, Workload, profiles, simulate

    table = profiles.load(measured["model"])
    scale = measured["bounds"]["compute_s"] * 1e6 / (table.forward_us + table.backward_us)
    rows = [row._replace(forward_us=row.forward_us * scale, backward_us=row.backward_us * scale) for row in table]
    workload = Workload.from_layers(LayerTable(rows))
    cluster = Cluster(
        workers=measured["workers"],
        architecture="allreduce",
        bandwidth_bps=measured["bandwidth_bps"] * PAYLOAD,
    )
    return {
        setting.name: simulate(workload, cluster, method_of(setting, all_reducing=True), iterations=iterations).median_us
        / 1e6
        for setting in find_settings(list(measured["settings"]))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mlp24,resnet50")
    parser.add_argument("--workers", default="2,3")
    parser.add_argument("--settings", default="tio", help="settings of the bench")
    parser.add_argument("--bandwidth", default="1gbit")
    parser.add_argument("--steps", type=int, default=10, help="steps measured for each setting")
    parser.add_argument("--iterations", type=int, default=10, help="steps simulated for each setting")
    parser.add_argument("--link", default="auto")
    parser.add_argument("--batch", default="auto")
    parser.add_argument("--again", default="", help="read the bench's results from this directory instead of measuring")
    parser.add_argument("--keep", default="", help="write them to this directory")
    arguments = parser.parse_args()
    if "vanilla" in arguments.settings.split(","):
        parser.error("--settings names vanilla, whose all-reduce the simulator does not have; name settings of tfsched only")

    from rich.console import Console
    from rich.table import Table

    table = Table("model", "workers", "batch", "setting", "compute s", "measured s", "predicted s", "error")
    errors = []
    with tempfile.TemporaryDirectory() as directory:
        kept = arguments.keep or directory
        for model in arguments.models.split(","):
            for workers in arguments.workers.split(","):
                name = f"mirrored-{model}-{workers}.json"
                if arguments.again:
                    with open(os.path.join(arguments.again, name), encoding="utf-8") as file:
                        measured = json.load(file)
                else:
                    measured = measure(model, int(workers), arguments, os.path.join(kept, name))
                for setting, predicted_s in predict(measured, arguments.iterations).items():
                    median_s = measured["settings"][setting]["median_s"]
                    errors.append(predicted_s / median_s - 1)
                    table.add_row(
                        *(model, workers, str(measured["batch"]), setting, f"{measured['bounds']['compute_s']:.3f}"),
                        *(f"{median_s:.3f}", f"{predicted_s:.3f}", f"{100 * errors[-1]:+.1f} %"),
                    )
    console = Console(width=110)
    console.print(table)
    console.print(
        f"error: median {100 * statistics.median(map(abs, errors)):.1f} %, largest {100 * max(map(abs, errors)):.1f} %; "
        f"within 5 %: {sum(abs(error) <= 0.05 for error in errors)} of {len(errors)}"
    )


if __name__ == "__main__":
    main()
