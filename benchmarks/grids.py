"""The default sizes of pieces and credit beside fixed ones, from slow links to unlimited ones.

    python benchmarks/grids.py --measure servers,servers-two,all-reduce [--bandwidths 100mbit,1gbit]
    python benchmarks/grids.py

The first measures grids, a bandwidth at a time, and keeps what it found in benchmarks/results/grids; it needs root, for
limited links. The second only writes docs/tuning-results.md from that. All cells of a bandwidth take turns block by block in
one run, beside stock TensorFlow. The model is a perceptron of layers of 4 MB, with fewer layers on slower links, so that a
step takes a second or so; the batch makes computing take nearly as long as communicating.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import results

from tfsched.bench.links import parse_bandwidth

KEPT = results.KEPT / "grids"
PAGE = results.ROOT / "docs" / "tuning-results.md"
LAYER_BYTES = 4_000_000
BANDWIDTHS = ("100mbit", "400mbit", "1gbit", "4gbit", "10gbit", "unlimited")
# (partition, credit) in bytes. The last leaves the layers whole.
PAIRS = (
    (250_000, 250_000),
    (250_000, 1_000_000),
    (500_000, 500_000),
    (500_000, 1_000_000),
    (1_000_000, 2_000_000),
    (2_000_000, 4_000_000),
    (4_000_000, 8_000_000),
)


class Grid(NamedTuple):
    """A cluster, and the setting whose sizes vary; `command` is the part of `tfsched bench` that names them."""

    title: str
    setting: str
    command: str


GRIDS = {
    "servers": Grid("One parameter server and one worker", "bytescheduler+barrier-crossing", "--phase train"),
    "servers-two": Grid(
        "Two parameter servers and two synchronous workers",
        "bytescheduler+barrier-crossing",
        "--phase train --ps 2 --workers 2 --placement balanced",
    ),
    "all-reduce": Grid("Two workers that all-reduce", "tio:barrier=false", "--api mirrored --workers 2"),
}


def model_for(bandwidth_bps: float | None) -> str:
    """A perceptron whose variables need about 0.8 s on the link, of 4 to 24 layers."""
    seconds_a_layer = LAYER_BYTES * 8 / (bandwidth_bps or math.inf)
    layers = 24 if seconds_a_layer == 0 else round(0.8 / seconds_a_layer)
    return f"mlp{min(max(layers, 4), 24)}x1000"


def name_of(grid: Grid, pair: tuple[int, int]) -> str:
    """The bench's name of a cell."""
    partition_bytes, credit_bytes = pair
    return f"{grid.setting}:partition_bytes={partition_bytes}:credit_bytes={credit_bytes}"


def command_of(grid: Grid, bandwidth: str) -> str:
    """What follows `tfsched bench`."""
    settings = ",".join(["vanilla", grid.setting, *(name_of(grid, pair) for pair in PAIRS)])
    bandwidth_bps = parse_bandwidth(bandwidth)
    # Steps on fast links are short, and processors set their pace: they vary more.
    often = "--steps 16 --block 8" if bandwidth_bps and bandwidth_bps <= 1e9 else "--steps 48 --block 12"
    model = model_for(bandwidth_bps)
    return f"{grid.command} --model {model} --settings {settings} --bandwidth {bandwidth} {often} --warmup 2"


def measure(name: str, bandwidths: Sequence[str]) -> None:
    """Measures the grid on these links; what is kept of its other links stays."""
    path = KEPT / f"{name}.json"
    for bandwidth in bandwidths:
        command = command_of(GRIDS[name], bandwidth)
        (result,) = results.bench(command, KEPT / f"{name}.tmp.json")
        kept = json.loads(path.read_text()) if path.exists() else {}
        kept[bandwidth] = {"command": command, "result": result}
        path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def _size(count: int) -> str:
    return f"{count / 1e6:g} MB" if count >= 1_000_000 else f"{count / 1e3:g} kB"


def table(grid: Grid, kept: Mapping[str, Any]) -> list[str]:
    """A row for each link that was measured: steps by the lower bound."""
    lines = [
        "| link | model | bound | stock | default | "
        + " | ".join(f"{_size(piece)}, {_size(credit)}" for piece, credit in PAIRS)
        + " | default by the best |",
        "|---|" + "---|" * (len(PAIRS) + 5),
    ]
    for bandwidth in BANDWIDTHS:
        if bandwidth not in kept:
            continue
        result = kept[bandwidth]["result"]
        found = result["settings"]
        names = [grid.setting, *(name_of(grid, pair) for pair in PAIRS)]
        default_s, *fixed_s = (found[name]["median_s"] for name in names)
        cells = [
            results.link(result["bandwidth_bps"]),
            f"{result['model']}, batch {result['batch']}",
            f"{result['bounds']['lower_s']:.3f} s",
            *(f"{found[name]['bound_ratio']:.2f}" for name in ["vanilla", *names]),
            f"{default_s / min(fixed_s):.3f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def render() -> str:
    """The page, of the grids that have been measured."""
    lines = [(KEPT / "introduction.md").read_text()]
    for name, grid in GRIDS.items():
        path = KEPT / f"{name}.json"
        if path.exists():
            lines += [f"## {grid.title}", "", f"`{name}`, with the setting `{grid.setting}`.", ""]
            lines += [*table(grid, json.loads(path.read_text())), ""]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Measure the grids that are named, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", default="", help=f"names of grids to measure, with commas: {', '.join(GRIDS)}")
    parser.add_argument("--bandwidths", default=",".join(BANDWIDTHS), help="which links, with commas")
    args = parser.parse_args()
    chosen, bandwidths = ([word for word in text.split(",") if word] for text in (args.measure, args.bandwidths))
    if unknown := [name for name in chosen if name not in GRIDS]:
        parser.error(f"no grid is named {unknown[0]}; the grids are {', '.join(GRIDS)}")
    if unknown := [bandwidth for bandwidth in bandwidths if bandwidth not in BANDWIDTHS]:
        parser.error(f"no grid has links of {unknown[0]}; give some of {', '.join(BANDWIDTHS)}")
    signal.signal(signal.SIGTERM, results.interrupt)
    for name in chosen:
        measure(name, bandwidths)
    PAGE.write_text(render())


if __name__ == "__main__":
    main()
