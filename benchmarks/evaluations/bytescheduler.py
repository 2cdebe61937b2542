"""ByteScheduler, figures 9 and 13 and Table 1: four machines of eight V100, parameter servers and all-reduce."""

from __future__ import annotations

import csv
import pathlib
import tempfile
from typing import Any

from .common import (
    DEFAULTS,
    FREE,
    ONE_PIECE,
    RING_DEFAULTS,
    TABLE_1,
    Shown,
    as_mxnet_cuts,
    by_point,
    command,
    gain,
    rate,
    shown,
    sized,
    table,
)

# isort: split
from tfsched.simulator import profiles

FLOPS = {"vgg16": "12e12", "resnet50": "8e12", "transformer": "10e12"}
BASE = f"vanilla{FREE}"
# Round robin by 4 would put every kernel of ResNet-50 on one server: kernel, bias, gamma, beta.
BALANCED = "--set placement=balanced"
# 300 us: section 4.1. In a ring of 32 that is 5 us for each of 62 steps.
RING = "--workers 32 --architecture ring --startup_us 5"


def from_table(model: str, flops: str, servers: int, line: str) -> dict[str, Any]:
    """A sweep of the model as stock MXNet cuts its tensors, which is a layer table in the place of the model."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "layers.csv"
        path.write_text(as_mxnet_cuts(profiles.load(model, None, float(flops)), servers).to_csv())
        return command(line.replace(f"--model {model} --flops {flops}", str(path)))


def bandwidths() -> None:
    """Figure 13: five bandwidths."""
    print("### ByteScheduler, figure 13\n")
    grid = "--bandwidth 1gbit,10gbit,25gbit,40gbit,100gbit"
    tail = f"{BALANCED} --startup_us 300 --iterations 5 --warmup 3"
    print("MXNet PS, 4 workers and 4 servers, samples (tokens) a second of one GPU:\n")
    rows = []
    for model, flops in FLOPS.items():
        line = f"sweep --model {model} --flops {flops} --workers 4 --servers workers {grid} {tail} --method {BASE}"
        parts = f"{line},{DEFAULTS},{ONE_PIECE} --split_bytes 4000000"
        if not rows:
            shown(line)
            shown(parts)
        whole = by_point(command(line)["rows"], "bandwidth_bps")
        # A file has no batch: its samples are steps.
        batch = profiles.default_batch(model)
        stock = by_point(from_table(model, flops, 4, line)["rows"], "bandwidth_bps")
        for bps, of in by_point(command(parts)["rows"], "bandwidth_bps").items():
            one, cut = whole[bps][BASE], stock[bps][BASE]
            cells = [rate(one, 4), rate(cut, 4 / batch), *[rate(row, 4) for row in (of[BASE], of[DEFAULTS], of[ONE_PIECE])]]
            gains = [gain(of[DEFAULTS], other) for other in (one, cut, of[BASE])]
            rows.append([model, f"{bps / 1e9:g}", *cells, *gains, gain(of[ONE_PIECE], of[BASE])])
    columns = ["stock, whole tensors", "MXNet's cut", "parts of 4 MB", "bytescheduler, 16 MB credit", "4 MB credit"]
    columns += ["16 MB over whole", "over MXNet's cut", "over parts", "4 MB over parts"]
    table(["model", "Gbit/s", *columns], rows)
    print("MXNet NCCL, 32 workers in a ring:\n")
    run = Shown()
    rows = []
    for model, flops in FLOPS.items():
        sizes = (sized(*TABLE_1[model][1]), RING_DEFAULTS, ONE_PIECE)
        line = f"sweep --model {model} --flops {flops} {RING.replace(' --startup_us 5', '')} {grid} --startup_us 5 "
        line += f"--iterations 5 --warmup 3 --method {BASE},{','.join(sizes)}"
        for bps, of in by_point(run(line)["rows"], "bandwidth_bps").items():
            cells = [rate(of[name], 32) for name in (BASE, *sizes)]
            rows.append([model, f"{bps / 1e9:g}", *cells, *[gain(of[name], of[BASE]) for name in sizes]])
    columns = ["stock", "Table 1's sizes", "32 MB, 64 MB", "4 MB, 4 MB"]
    table(["model", "Gbit/s", *columns, "Table 1's over stock", "32 MB over stock", "4 MB over stock"], rows)


def table1() -> None:
    """Table 1: which partition and credit are best."""
    print("### ByteScheduler, Table 1\n")
    partitions, credits = (1, 3, 6, 12, 24, 56, 88), (4, 17, 64, 171)
    run = Shown()
    rows = []
    for bandwidth in ("10gbit", "100gbit"):
        for model, flops in FLOPS.items():
            for name, paper in zip(("PS", "ring"), TABLE_1[model], strict=True):
                found: list[tuple[float, int, int]] = []
                for partition in partitions:
                    methods = ",".join(sized(partition, credit) for credit in credits)
                    where = RING
                    if name == "PS":
                        split = f"{BALANCED} --split_bytes {partition}000000"
                        where = f"--workers 4 --servers workers {split} --startup_us 300"
                    tail = f"--bandwidth {bandwidth} --iterations 4 --warmup 3 --method {methods}"
                    answer = run(f"sweep --model {model} --flops {flops} {where} {tail}")
                    for credit, row in zip(credits, answer["rows"], strict=True):
                        found.append((row["samples_per_s"], partition, credit))
                top = max(found)[0]
                good = sorted({partition for value, partition, _ in found if value >= 0.99 * top})
                lent = sorted({credit for value, _, credit in found if value >= 0.99 * top})
                ends = [max(value for value, partition, _ in found if partition == p) / top - 1 for p in (1, 88)]
                cells = [f"{good[0]} to {good[-1]}", f"{lent[0]} to {lent[-1]}", *[f"{e:.1%}" for e in ends]]
                rows.append([model, name, bandwidth.removesuffix("gbit"), *cells, f"{paper[0]}, {paper[1]}"])
    columns = ["partition MB within 1% of the best", "credit MB within 1%", "1 MB", "88 MB"]
    table(["model", "", "Gbit/s", *columns, "paper, at 100 Gbit/s: partition, credit MB"], rows)


def search() -> None:
    """Figure 9: Bayesian search for the credit of VGG16, all-reduce."""
    print("### ByteScheduler, figure 9\n")
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "samples.csv"
        line = (
            f"tune --model vgg16 --flops {FLOPS['vgg16']} {RING} --bandwidth 25gbit --policies bytescheduler "
            f"--method {sized(32, 512)} --partition_range 32000000,32000000 --credit_range 4000000,512000000 --samples 40"
        )
        shown(f"{line} --csv samples.csv")
        command(f"{line} --csv {path}")
        with path.open() as file:
            # Of each credit the first sample.
            samples = {int(row["credit_bytes"]): float(row["seconds"]) for row in reversed(list(csv.DictReader(file)))}
    credits = sorted(samples)
    rows = [["samples a second of one GPU", *[f"{32 / samples[credit]:.1f}" for credit in credits]]]
    table(["credit, MB", *[f"{credit / 1e6:g}" for credit in credits]], rows)
