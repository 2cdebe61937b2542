"""TicTac, figures 7 to 10: one server, 1 Gbit/s, the batch at which computing takes as long as communicating."""

from __future__ import annotations

import json
import pathlib
import tempfile
from typing import Any

from .common import command, shown, table  # first: it makes tfsched importable

# isort: split
import yaml

from tfsched.ordering import Dag, Op, Resource, percentile
from tfsched.ordering.metrics import efficiency as ordering_efficiency
from tfsched.ordering.metrics import normalized_step_times, r_squared
from tfsched.simulator import Cluster, Workload, profiles
from tfsched.simulator.bounds import bounds_us

# At 4 workers the server's link gives each a quarter. A 32-core Xeon of the time.
FLOPS = 2e11
BATCHES = {"alexnet_v2": 874, "inception_v2": 73, "vgg16": 114, "seq32": 12792}
METHODS = ("vanilla", "tio", "tao")
WARMUP = 2


def settings(noise: float, iterations: int) -> str:
    return (
        f"--flops {FLOPS:g} --bandwidth 1gbit --set straggler=normal,straggler_scale={noise:g} "
        f"--method {','.join(METHODS)} --iterations {iterations}"
    ).replace("e+", "e")


def par32(path: pathlib.Path) -> None:
    """TicTac's Par-32, 32 concurrent layers of 875 x 875: no layer table can say that, so it is a DAG."""
    ops = []
    for i in range(32):
        ops.append(Op(f"recv{i}", "ps>w", (), None, 875 * 875 * 4))
        ops.append(Op(f"layer{i}", "w/compute", (f"recv{i}",), 98_000.0))
    path.write_text(json.dumps(Dag([Resource("w/compute", "compute"), Resource("ps>w", "link", 1e9)], ops).to_json()))


def gains() -> None:
    """Figures 9 and 10: throughput, efficiency, stragglers, and what more workers change."""
    print("### TicTac, figures 9 and 10\n")
    common = settings(0.02, 30)
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        flat = pathlib.Path(directory) / "par32.json"
        par32(flat)
        for model, batch in {**BATCHES, "par32": 0}.items():
            for phase in ("forward", "train") if batch else ("forward",):
                what = f"--model {model} --batch {batch} --phase {phase}" if batch else str(flat)
                line = f"simulate {what} --workers 4 {common}"
                if model == "alexnet_v2" and phase == "forward":
                    shown(line)
                rows.append([model, phase, *_cells(command(line)["methods"])])
    columns = ["model", "phase", "tio", "tao", "best", "worst", "E: stock", "tio", "tao", "straggler: stock", "tio", "tao"]
    table(columns, rows)
    rows = []
    for model, batch in BATCHES.items():
        for phase in ("forward", "train"):
            cells = []
            for workers in (1, 4):
                line = (
                    f"simulate --model {model} --batch {batch * workers // 4} --phase {phase} --workers {workers} {common}"
                )
                methods = command(line)["methods"]
                cells.append(f"{methods['vanilla']['median_us'] / methods['tao']['median_us'] - 1:+.0%}")
            rows.append([model, phase, *cells])
    print("Gain of TAO by the number of workers, each with the batch at which both take equally long:\n")
    table(["model", "phase", "1 worker", "4 workers"], rows)


def _cells(methods: dict[str, Any]) -> list[str]:
    first = methods["vanilla"]
    return [
        *[f"{first['median_us'] / methods[m]['median_us'] - 1:+.0%}" for m in METHODS[1:]],
        # Throughput if every worker had the makespan of E = 1, and of E = 0.
        *[f"{first['median_us'] / first[bound] - 1:+.0%}" for bound in ("lower_us", "upper_us")],
        *[f"{methods[m]['efficiency']:.2f}" for m in METHODS],
        *[f"{methods[m]['straggler']:.1%}" for m in METHODS],
    ]


def efficiency() -> None:
    """Figures 7 and 8: how well E predicts the step time of Inception v2's forward pass, and how steady it is."""
    print("### TicTac, figures 7 and 8\n")
    rows = []
    for workers, noise in ((4, 0.02), (4, 0.0035), (1, 0.0035)):
        batch = BATCHES["inception_v2"] * workers // 4
        what = f"--model inception_v2 --batch {batch} --phase forward --workers {workers}"
        line = f"simulate {what} {settings(noise, 300)}"
        if not rows:
            shown(line)
        result = command(line)
        methods = result["methods"]
        best_us = min(us for one in methods.values() for us in one["iteration_us"])
        ratios = {name: normalized_step_times(one["iteration_us"], best_us) for name, one in methods.items()}
        cluster = Cluster.from_mapping(yaml.safe_load(result["cluster"]))
        both = ("vanilla", "tao")
        e = [one for name in both for one in _each_e(methods[name], cluster, batch)]
        rows.append(
            [
                f"{workers}",
                f"{noise:.2%}",
                f"{r_squared(e, [ratio for name in both for ratio in ratios[name]]):.3f}",
                # 95% of the steps are at least as good.
                *[f"{percentile(ratios[name], 5):.3f}" for name in METHODS],
                *[f"{percentile(ratios[name], 95) - percentile(ratios[name], 5):.3f}" for name in METHODS],
            ]
        )
    rows.append(["paper (4)", "", "0.98", "0.634", "0.998", "0.998", "", "", ""])
    columns = ["workers", "noise of op times", "R²", "95% reach: stock", "tio", "tao", "5th to 95th: stock", "tio", "tao"]
    table(columns, rows)


def _each_e(result: dict[str, Any], cluster: Cluster, batch: int) -> list[float]:
    """E of every step, with the bounds of its own op times, as the paper measures it."""
    workload = Workload.from_layers(profiles.load("inception_v2", batch, FLOPS), "forward")
    factors = cluster.compute_factors(WARMUP + len(result["iteration_us"]), seed=0)[WARMUP:]
    return [
        ordering_efficiency(*bounds_us(workload, cluster, float(row.mean())), us)
        for row, us in zip(factors, result["iteration_us"], strict=True)
    ]
