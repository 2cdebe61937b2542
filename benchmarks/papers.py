"""Runs `tfsched sweep` with the settings of the papers' evaluations and prints the tables of docs/papers.md.

Usage: python benchmarks/papers.py [--only tictac prophet pace bytescheduler table1]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import pathlib
import shlex
import sys
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tfsched import cli  # noqa: E402
from tfsched.ordering import Dag, Op, Resource  # noqa: E402
from tfsched.ordering.layers import LayerTable  # noqa: E402
from tfsched.simulator import profiles  # noqa: E402

# Without a barrier, as MXNet's engine is (ByteScheduler, section 2.3).
FREE = ":barrier=false"


def command(line: str) -> dict[str, Any]:
    """The JSON of one tfsched command line, run in this process."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = cli.run([*shlex.split(line), "--json", "--quiet"])
    if code:
        sys.exit(f"papers: `tfsched {line}` failed")
    return json.loads(out.getvalue())


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def shown(line: str) -> None:
    print(f"`tfsched {line}`\n")


def by_point(rows: Sequence[dict[str, Any]], key: str) -> dict[float, dict[str, dict[str, Any]]]:
    points: dict[float, dict[str, dict[str, Any]]] = {}
    for row in rows:
        points.setdefault(row[key], {})[row["method"]] = row
    return points


def rate(row: dict[str, Any], workers: float = 1) -> str:
    return f"{row['samples_per_s'] / workers:,.1f}"


def gain(row: dict[str, Any], over: dict[str, Any], digits: int = 0) -> str:
    return f"{row['samples_per_s'] / over['samples_per_s'] - 1:+.{digits}%}"


def par32(path: pathlib.Path) -> None:
    """TicTac's Par-32, 32 concurrent layers of 875 x 875: no layer table can say that, so it is a DAG."""
    ops = []
    for i in range(32):
        ops.append(Op(f"recv{i}", "ps>w", (), None, 875 * 875 * 4))
        ops.append(Op(f"layer{i}", "w/compute", (f"recv{i}",), 98_000.0))
    path.write_text(json.dumps(Dag([Resource("w/compute", "compute"), Resource("ps>w", "link", 1e9)], ops).to_json()))


def tictac() -> None:
    """TicTac, figures 9 and 10: one server, 1 Gbit/s, the batch at which computing takes as long as communicating."""
    print("### TicTac, figures 9 and 10\n")
    # At 4 workers the server's link gives each a quarter. 2e11 operations a second: a 32-core Xeon of the time.
    batches = {"alexnet_v2": 874, "inception_v2": 73, "vgg16": 114, "seq32": 12792}
    common = (
        "--flops 2e11 --bandwidth 1gbit --set straggler=normal,straggler_scale=0.02 --method vanilla,tio,tao --iterations 30"
    )
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        flat = pathlib.Path(directory) / "par32.json"
        par32(flat)
        for model, batch in {**batches, "par32": 0}.items():
            for phase in ("forward", "train") if batch else ("forward",):
                what = f"--model {model} --batch {batch} --phase {phase}" if batch else str(flat)
                line = f"simulate {what} --workers 4 {common}"
                if model == "alexnet_v2" and phase == "forward":
                    shown(line)
                methods = command(line)["methods"]
                first = methods["vanilla"]
                rows.append(
                    [
                        model,
                        phase,
                        *[f"{first['median_us'] / methods[m]['median_us'] - 1:+.0%}" for m in ("tio", "tao")],
                        *[f"{methods[m]['efficiency']:.2f}" for m in ("vanilla", "tio", "tao")],
                        *[f"{methods[m]['straggler']:.1%}" for m in ("vanilla", "tio", "tao")],
                    ]
                )
    columns = ["model", "phase", "tio", "tao", "E: stock", "tio", "tao", "straggler: stock", "tio", "tao"]
    table(columns, rows)
    rows = []
    for model, batch in batches.items():
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


# The defaults of ByteScheduler's documentation, in bytes of float32 parameters; for all-reduce those that it calls larger.
DEFAULTS = "bytescheduler+barrier-crossing:partition_bytes=4000000:credit_bytes=16000000"
RING_DEFAULTS = "bytescheduler+barrier-crossing:partition_bytes=32000000:credit_bytes=64000000"
SERVER_10 = "--workers 3 --set server_bandwidth_bps=10gbit"
# A credit of no more than one piece: each waits for the one before (stop and wait).
ONE_PIECE = "bytescheduler+barrier-crossing:partition_bytes=4000000:credit_bytes=4000000"


def stepwise(path: pathlib.Path, at_once: int) -> None:
    """Prophet's stepwise pattern (section 2.2): ResNet-50's gradients, generated so many at a time."""
    rows = list(profiles.load("resnet50", 64, 1.66e12))
    for end in range(len(rows), 0, -at_once):
        block = range(max(end - at_once, 0), end)
        total_us = sum(rows[i].backward_us for i in block)
        for i in block:  # the one computed first takes the time of all
            rows[i] = rows[i]._replace(backward_us=total_us if i == end - 1 else 0.0)
    path.write_text(LayerTable(rows).to_csv())


def prophet() -> None:
    """Prophet, Tables 2 and 3, and the robustness paragraph of section 5.3."""
    print("### Prophet, Tables 2 and 3, figure 12\n")
    methods = f"vanilla{FREE},prophet{FREE},{DEFAULTS},{ONE_PIECE},p3{FREE}:partition_bytes=4000000"
    names = methods.split(",")
    tail = f"--startup_us 3000 --method {methods} --iterations 5 --warmup 3"
    published = {
        1.0: (27.7, 25.9, 25.16), 2.0: (47.9, 39.09, 37.69), 3.0: (60, 44, 51.22), 4.0: (67.06, 50.5, 64.34),
        4.5: (69.29, 54.14, 67.83), 6.0: (69.5, 70, 68.93), 10.0: (70.6, 71.1, 72.83),
    }  # fmt: skip
    bandwidths = ",".join(f"{gbps:g}gbit" for gbps in published)
    for title, where in (
        ("As section 5.1 describes it: 3 workers of limited bandwidth, a server of 10 Gbit/s", SERVER_10),
        ("Fitted: 2 workers, and the server's link limited as theirs", "--workers 2"),
    ):
        print(f"{title}:\n")
        line = f"sweep --model resnet50 --flops 1.66e12 --batch 64 --bandwidth {bandwidths} {where} {tail}"
        shown(line)
        rows = []
        for bps, of in by_point(command(line)["rows"], "bandwidth_bps").items():
            first, second, third = published[bps / 1e9]
            papers = ("", f" ({first:g})", f" ({second:g})", "", f" ({third:g})")
            workers = of[names[0]]["workers"]
            cells = [rate(of[name], workers) + paper for name, paper in zip(names, papers, strict=True)]
            rows.append([f"{bps / 1e6:,.0f}", *cells])
        columns = ["stock MXNet", "prophet (paper)", "bytescheduler, 16 MB credit (paper)", "4 MB credit", "p3 (paper)"]
        table(["Mbit/s", *columns], rows)
    rows = []
    for model, flops, batch, paper in (
        ("resnet18", "2.4e12", 16, "32.46, 29.06"),
        ("resnet18", "2.4e12", 64, "153, 115"),
        ("resnet50", "1.66e12", 16, "14.44, 14.22"),
        ("resnet50", "1.66e12", 32, "34.8, 28.5"),
        ("resnet50", "1.66e12", 64, "60, 44"),
    ):
        line = f"sweep --model {model} --flops {flops} --batch {batch} --bandwidth 3gbit --workers 2 {tail}"
        if not rows:
            shown(line)
        of = next(iter(by_point(command(line)["rows"], "bandwidth_bps").values()))
        cells = [rate(of[name], 2) for name in names[1:4]]
        gains = [gain(of[names[1]], of[name]) for name in names[2:4]]
        rows.append([f"{model} ({batch})", *cells, *gains, paper])
    columns = ["prophet", "bytescheduler, 16 MB", "4 MB", "gain over 16 MB", "over 4 MB"]
    table(["model (batch)", *columns, "paper: prophet, bytescheduler"], rows)
    print("The stepwise pattern: 13 gradients at once (figure 4), by a layer table in the place of the model, as fitted:\n")
    with tempfile.TemporaryDirectory() as directory:
        layers = pathlib.Path(directory) / "layers.csv"
        stepwise(layers, 13)
        line = f"--workers 2 --startup_us 3000 --method {names[1]},{DEFAULTS} --iterations 5 --warmup 3"
        steps = by_point(command(f"sweep {layers} --bandwidth {bandwidths} {line}")["rows"], "bandwidth_bps")
    # A file has no batch: its samples are steps.
    rows = [[f"{bps / 1e6:,.0f}", *[rate(row, 2 / 64) for row in of.values()]] for bps, of in steps.items()]
    table(["Mbit/s", "prophet", "bytescheduler, 16 MB credit"], rows)
    print("Figure 12, samples a second of one worker at 10 Gbit/s (paper: 69.94 with 2 workers, 68.83 with 8):\n")
    line = (
        "sweep --model resnet50 --flops 1.66e12 --batch 64 --bandwidth 10gbit --workers 1,2,4,6,8 --startup_us 3000 "
        f"--method prophet{FREE} --iterations 5 --warmup 3"
    )
    shown(line)
    found = {row["workers"]: rate(row, row["workers"]) for row in command(line)["rows"]}
    table(["senders", *map(str, found)], [["prophet", *found.values()]])


def pace() -> None:
    """PACE, figures 8 and 9: ring all-reduce, 1080 Ti."""
    print("### PACE, figures 8 and 9\n")
    methods = f"vanilla{FREE},tao{FREE},mg-wfbp{FREE},pace{FREE},pace{FREE}:partition_bytes=4000000,buckets{FREE}"
    names = methods.split(",")
    common = f"--architecture ring --startup_us 10 --method {methods} --iterations 5 --warmup 3"
    models = {"vgg16": ("6e12", 64), "resnet50": ("5.5e12", 32), "transformer": ("6e12", 2048)}
    header = ["WFBP", "TicTac", "MG-WFBP", "PACE", "PACE, 4 MB", "buckets"]
    header += ["PACE over WFBP", "TicTac", "MG-WFBP", "buckets over PACE", "over PACE, 4 MB"]
    for figure, grid, key in (
        (
            "figure 8: 10 Gbit/s, samples (tokens) a second of all workers",
            "--bandwidth 10gbit --workers 2,4,8,12,16",
            "workers",
        ),
        (
            "figure 9: 12 workers",
            "--bandwidth 1gbit,2gbit,4gbit,6gbit,8gbit,10gbit,12gbit,14gbit,20gbit,25gbit --workers 12",
            "bandwidth_bps",
        ),
    ):
        print(f"{figure}\n")
        rows = []
        for model, (flops, batch) in models.items():
            line = f"sweep --model {model} --flops {flops} --batch {batch} {grid} {common}"
            if model == "vgg16":
                shown(line)
            for x, of in by_point(command(line)["rows"], key).items():
                label = f"{x:g}" if key == "workers" else f"{x / 1e9:g}"
                gains = [gain(of[names[3]], of[names[i]]) for i in range(3)]
                gains += [gain(of[names[5]], of[name], 1) for name in names[3:5]]
                rows.append([model, label, *[rate(of[name]) for name in names], *gains])
        table(["model", "workers" if key == "workers" else "Gbit/s", *header], rows)


def bytescheduler() -> None:
    """ByteScheduler, figure 13: four machines of eight V100, parameter servers and all-reduce."""
    print("### ByteScheduler, figure 13\n")
    grid = "--bandwidth 1gbit,10gbit,25gbit,40gbit,100gbit"
    models = {"vgg16": "12e12", "resnet50": "8e12", "transformer": "10e12"}
    base = f"vanilla{FREE}"
    # Round robin by 4 would put every kernel of ResNet-50 on one server: kernel, bias, gamma, beta.
    tail = "--set placement=balanced --startup_us 300 --iterations 5 --warmup 3"
    print("MXNet PS, 4 workers and 4 servers, samples (tokens) a second of one GPU:\n")
    rows = []
    for model, flops in models.items():
        line = f"sweep --model {model} --flops {flops} --workers 4 --servers workers {grid} {tail} --method {base}"
        parts = f"{line},{DEFAULTS},{ONE_PIECE} --split_bytes 4000000"
        if not rows:
            shown(line)
            shown(parts)
        whole = by_point(command(line)["rows"], "bandwidth_bps")
        for bps, of in by_point(command(parts)["rows"], "bandwidth_bps").items():
            one = whole[bps][base]
            cells = [rate(row, 4) for row in (one, of[base], of[DEFAULTS], of[ONE_PIECE])]
            gains = [gain(of[DEFAULTS], one), gain(of[DEFAULTS], of[base]), gain(of[ONE_PIECE], of[base])]
            rows.append([model, f"{bps / 1e9:g}", *cells, *gains])
    columns = ["stock, whole tensors", "stock, parts of 4 MB", "bytescheduler, 16 MB credit", "4 MB credit"]
    columns += ["16 MB over whole", "over parts", "4 MB over parts"]
    table(["model", "Gbit/s", *columns], rows)
    print("MXNet NCCL, 32 workers in a ring:\n")
    # Partition and credit are the paper's own, Table 1.
    best = {"vgg16": (88, 171), "resnet50": (56, 64), "transformer": (56, 103)}
    rows = []
    for model, flops in models.items():
        partition, credit = (1_000_000 * size for size in best[model])
        tuned = f"bytescheduler+barrier-crossing:partition_bytes={partition}:credit_bytes={credit}"
        sizes = (tuned, RING_DEFAULTS, ONE_PIECE)
        line = (
            f"sweep --model {model} --flops {flops} --workers 32 --architecture ring {grid} --startup_us 5 --iterations 5 "
            f"--warmup 3 --method {base},{','.join(sizes)}"
        )
        if not rows:
            shown(line)
        for bps, of in by_point(command(line)["rows"], "bandwidth_bps").items():
            cells = [rate(of[name], 32) for name in (base, *sizes)]
            rows.append([model, f"{bps / 1e9:g}", *cells, *[gain(of[name], of[base]) for name in sizes]])
    columns = ["stock", "Table 1's sizes", "32 MB, 64 MB", "4 MB, 4 MB"]
    table(["model", "Gbit/s", *columns, "Table 1's over stock", "32 MB over stock", "4 MB over stock"], rows)


def table1() -> None:
    """ByteScheduler, Table 1: which partition and credit are best."""
    print("### ByteScheduler, Table 1\n")
    partitions, credits = (1, 3, 6, 12, 24, 56, 88), (4, 17, 64, 171)
    rows = []
    for model, flops, published in (
        ("vgg16", "12e12", ("6, 21", "88, 171")),
        ("resnet50", "8e12", ("3, 17", "56, 64")),
        ("transformer", "10e12", ("5, 29", "56, 103")),
    ):
        for name, paper in zip(("PS", "ring"), published, strict=True):
            found: list[tuple[float, int, int]] = []
            for partition in partitions:
                methods = ",".join(
                    f"bytescheduler+barrier-crossing:partition_bytes={partition}000000:credit_bytes={credit}000000"
                    for credit in credits
                )
                split = f"--set placement=balanced --split_bytes {partition}000000"
                where = f"--workers 4 --servers workers {split} --startup_us 300"
                if name == "ring":
                    where = "--workers 32 --architecture ring --startup_us 5"
                tail = f"--bandwidth 10gbit --iterations 4 --warmup 3 --method {methods}"
                line = f"sweep --model {model} --flops {flops} {where} {tail}"
                if not rows and partition == partitions[0]:
                    shown(line)
                for credit, row in zip(credits, command(line)["rows"], strict=True):
                    found.append((row["samples_per_s"], partition, credit))
            top = max(found)[0]
            good = sorted({partition for value, partition, _ in found if value >= 0.99 * top})
            lent = sorted({credit for value, _, credit in found if value >= 0.99 * top})
            ends = [max(value for value, partition, _ in found if partition == p) / top - 1 for p in (1, 88)]
            rows.append(
                [model, name, f"{good[0]} to {good[-1]}", f"{lent[0]} to {lent[-1]}", *[f"{e:.1%}" for e in ends], paper]
            )
    table(
        [
            "model",
            "",
            "partition MB within 1% of the best",
            "credit MB within 1%",
            "1 MB",
            "88 MB",
            "paper: partition, credit MB",
        ],
        rows,
    )


PARTS = {part.__name__: part for part in (tictac, prophet, pace, bytescheduler, table1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    for name in parser.parse_args().only:
        PARTS[name]()


if __name__ == "__main__":
    main()
