"""Prophet, Tables 2 and 3, figures 8 and 12, and unequal workers: how fast a cluster trains."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Sequence

from .common import DEFAULTS, FREE, ONE_PIECE, Shown, by_point, command, gain, point, rate, shown, table

# isort: split
from tfsched.ordering.layers import LayerTable
from tfsched.simulator import profiles

SERVER_10 = "--workers 3 --set server_bandwidth_bps=10gbit"
METHODS = (f"vanilla{FREE}", f"prophet{FREE}", DEFAULTS, ONE_PIECE, f"p3{FREE}:partition_bytes=4000000")
TAIL = f"--startup_us 3000 --method {','.join(METHODS)} --iterations 5 --warmup 3"
# Fitted: operations a second.
FLOPS = {"resnet18": "2.4e12", "resnet50": "1.66e12"}
# Table 2: Gbit/s -> Prophet, ByteScheduler, P3.
TABLE_2 = {
    1.0: (27.7, 25.9, 25.16), 2.0: (47.9, 39.09, 37.69), 3.0: (60, 44, 51.22), 4.0: (67.06, 50.5, 64.34),
    4.5: (69.29, 54.14, 67.83), 6.0: (69.5, 70, 68.93), 10.0: (70.6, 71.1, 72.83),
}  # fmt: skip
BANDWIDTHS = ",".join(f"{gbps:g}gbit" for gbps in TABLE_2)


def tables() -> None:
    """Tables 2 and 3."""
    print("### Prophet, Tables 2 and 3\n")
    for title, where in (
        ("As section 5.1 describes it: 3 workers of limited bandwidth, a server of 10 Gbit/s", SERVER_10),
        ("Fitted: 2 workers, and the server's link limited as theirs", "--workers 2"),
        ("The same, updated part by part", "--workers 2 --set updates=piece"),
    ):
        print(f"{title}:\n")
        line = f"sweep --model resnet50 --flops 1.66e12 --batch 64 --bandwidth {BANDWIDTHS} {where} {TAIL}"
        shown(line)
        rows = []
        for bps, of in by_point(command(line)["rows"], "bandwidth_bps").items():
            first, second, third = TABLE_2[bps / 1e9]
            papers = ("", f" ({first:g})", f" ({second:g})", "", f" ({third:g})")
            workers = of[METHODS[0]]["workers"]
            cells = [rate(of[name], workers) + paper for name, paper in zip(METHODS, papers, strict=True)]
            rows.append([f"{bps / 1e6:,.0f}", *cells])
        columns = ["stock MXNet", "prophet (paper)", "bytescheduler, 16 MB credit (paper)", "4 MB credit", "p3 (paper)"]
        table(["Mbit/s", *columns], rows)
    run = Shown()
    rows = []
    for model, batch, paper in (
        ("resnet18", 16, "32.46, 29.06"),
        ("resnet18", 64, "153, 115; stock 110, P3 137"),
        ("resnet50", 16, "14.44, 14.22"),
        ("resnet50", 32, "34.8, 28.5"),
        ("resnet50", 64, "60, 44"),
    ):
        of = point(f"sweep --model {model} --flops {FLOPS[model]} --batch {batch} --bandwidth 3gbit --workers 2 {TAIL}", run)
        cells = [rate(of[name], 2) for name in METHODS]
        gains = [gain(of[METHODS[1]], of[name]) for name in METHODS[2:4]]
        rows.append([f"{model} ({batch})", *cells, *gains, paper])
    columns = ["stock MXNet", "prophet", "bytescheduler, 16 MB", "4 MB", "p3", "gain over 16 MB", "over 4 MB"]
    table(["model (batch)", *columns, "paper: prophet, bytescheduler"], rows)


def gains() -> None:
    """Figure 8 and the stepwise pattern of figure 4: models, batches, and gradients that come in blocks."""
    print("### Prophet, figures 4 and 8\n")
    run = Shown()
    rows = []
    for model in ("resnet18", "resnet50", "resnet152", "inception_v3"):
        cells = []
        for batch in (16, 32, 64):
            flops = FLOPS.get(model, FLOPS["resnet50"])
            line = f"sweep --model {model} --flops {flops} --batch {batch} --bandwidth 3gbit --workers 2 {TAIL}"
            of = point(line, run)
            cells += [gain(of[METHODS[1]], of[name]) for name in METHODS[2:4]]
        rows.append([model, *cells])
    table(["model", *[f"batch {batch}{over}" for batch in (16, 32, 64) for over in (", over 16 MB", ", over 4 MB")]], rows)
    names = METHODS[1:3]
    line = f"--workers 2 --startup_us 3000 --method {','.join(names)} --iterations 5 --warmup 3"
    print("The stepwise pattern: 13 gradients at once (figure 4), by a layer table in the place of the model, as fitted:\n")
    with tempfile.TemporaryDirectory() as directory:
        layers = pathlib.Path(directory) / "layers.csv"
        whole = profiles.load("resnet50", 64, 1.66e12)
        layers.write_text(stepwise(whole, range(len(whole) - 13, 0, -13)).to_csv())
        steps = by_point(command(f"sweep {layers} --bandwidth {BANDWIDTHS} {line}")["rows"], "bandwidth_bps")
        # A file has no batch: its samples are steps.
        rows = [[f"{bps / 1e6:,.0f}", *[rate(row, 2 / 64) for row in of.values()]] for bps, of in steps.items()]
        table(["Mbit/s", "prophet", "bytescheduler, 16 MB credit"], rows)
        print("VGG19 at 3 Gbit/s, one by one and in the four blocks that the text names:\n")
        rows = []
        whole = profiles.load("vgg19", 64, 1.66e12)
        blocks = stepwise(whole, (28, 14, 2))
        for updates, name, made in (
            ("tensor", "one by one", whole),
            ("tensor", "four blocks", blocks),
            ("piece", "one by one", whole),
            ("piece", "four blocks", blocks),
        ):
            layers.write_text(made.to_csv())
            steps = by_point(command(f"sweep {layers} --bandwidth 3gbit {line} --set updates={updates}")["rows"], "workers")
            of = steps[2]
            cells = [rate(of[method], 2 / 64) for method in names]
            rows.append([f"by {updates}", name, *cells, gain(of[names[0]], of[names[1]])])
        table(["updates", "gradients", "prophet", "bytescheduler, 16 MB credit", "gain"], rows)


def stepwise(layers: LayerTable, begins: Sequence[int]) -> LayerTable:
    """The same gradients in blocks (section 2.2), from the last tensor to the first; `begins`: of all blocks but the last.

    The tensor that is computed first takes the time of its whole block, so that all of it comes at once.
    """
    rows = list(layers)
    end = len(rows)
    for begin in (*begins, 0):
        total_us = sum(row.backward_us for row in rows[begin:end])
        for i in range(begin, end):
            rows[i] = rows[i]._replace(backward_us=total_us if i == end - 1 else 0.0)
        end = begin
    return LayerTable(rows)


def workers() -> None:
    """Figure 12 and section 5.3, "heterogeneous environments"."""
    print("### Prophet, figure 12 and unequal workers\n")
    print("Figure 12, samples a second of one worker at 10 Gbit/s (paper: 69.94 with 2 workers, 68.83 with 8):\n")
    line = (
        "sweep --model resnet50 --flops 1.66e12 --batch 64 --bandwidth 10gbit --workers 1,2,4,6,8 --startup_us 3000 "
        f"--method prophet{FREE} --iterations 5 --warmup 3"
    )
    shown(line)
    found = {row["workers"]: rate(row, row["workers"]) for row in command(line)["rows"]}
    table(["senders", *map(str, found)], [["prophet", *found.values()]])
    print("One worker of 500 Mbit/s, samples a second of each worker:\n")
    run = Shown()
    rows = []
    for title, own in (
        ("3 workers", "10gbit,10gbit,500mbit"),
        ("2 workers", "10gbit,500mbit"),
        ("2 workers, 250 Mbit/s", "10gbit,250mbit"),
    ):
        count = own.count(",") + 1
        line = f"sweep --model resnet50 --flops 1.66e12 --batch 64 --bandwidth 10gbit --workers {count} "
        of = point(f"{line}--set worker_bandwidth_bps=[{own}] {TAIL}", run)
        cells = [rate(of[name], count) for name in METHODS]
        rows.append([title, *cells, gain(of[METHODS[1]], of[METHODS[2]], 1)])
    rows.append(["paper", "15.09", "26.4", "25.8", "", "", "+2.3%"])
    columns = ["stock MXNet", "prophet", "bytescheduler, 16 MB", "4 MB", "p3", "prophet over 16 MB"]
    table(["", *columns], rows)
