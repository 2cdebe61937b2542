"""What all evaluations need: tfsched command lines run in this process, and tables in Markdown."""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tfsched import cli
from tfsched.ordering.layers import Layer, LayerTable

# Without a barrier, as MXNet's engine is (ByteScheduler, section 2.3).
FREE = ":barrier=false"
CROSSING = "bytescheduler+barrier-crossing"
# The defaults of ByteScheduler's documentation, in bytes of float32 parameters; for all-reduce those that it calls larger.
DEFAULTS = f"{CROSSING}:partition_bytes=4000000:credit_bytes=16000000"
RING_DEFAULTS = f"{CROSSING}:partition_bytes=32000000:credit_bytes=64000000"
# A credit of no more than one piece: each waits for the one before (stop and wait).
ONE_PIECE = f"{CROSSING}:partition_bytes=4000000:credit_bytes=4000000"
# Table 1 of ByteScheduler at 100 Gbit/s: partition and credit in MB, with parameter servers and all-reduce.
TABLE_1 = {
    "vgg16": ((6, 21), (88, 171)),
    "resnet50": ((3, 17), (56, 64)),
    "transformer": ((5, 29), (56, 103)),
}


def sized(partition_mb: float, credit_mb: float) -> str:
    """ByteScheduler across the barrier with these sizes."""
    return f"{CROSSING}:partition_bytes={round(partition_mb * 1e6)}:credit_bytes={round(credit_mb * 1e6)}"


def command(line: str) -> dict[str, Any]:
    """The JSON of one tfsched command line, run in this process."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = cli.run([*shlex.split(line), "--json", "--quiet"])
    if code:
        sys.exit(f"papers: `tfsched {line}` failed")
    return json.loads(out.getvalue())


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(
        ["| " + " | ".join(header) + " |", "|" + "---|" * len(header), *("| " + " | ".join(row) + " |" for row in rows)]
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    print(markdown(header, rows) + "\n", flush=True)


def shown(line: str) -> None:
    print(f"`tfsched {line}`\n")


class Shown:
    """Runs the commands of one table and shows the first of them, for the others differ in few words."""

    def __init__(self) -> None:
        self._first = True

    def __call__(self, line: str, show: str = "") -> dict[str, Any]:
        if self._first:
            shown(show or line)
        self._first = False
        return command(line)


def by_point(rows: Sequence[dict[str, Any]], key: str) -> dict[float, dict[str, dict[str, Any]]]:
    """A sweep's rows: value of `key` -> method -> row."""
    points: dict[float, dict[str, dict[str, Any]]] = {}
    for row in rows:
        points.setdefault(row[key], {})[row["method"]] = row
    return points


def point(line: str, run: Any = command) -> dict[str, dict[str, Any]]:
    """A sweep of one point: method -> row."""
    return {row["method"]: row for row in run(line)["rows"]}


def rate(row: dict[str, Any], workers: float = 1) -> str:
    return f"{row['samples_per_s'] / workers:,.1f}"


def gain(row: dict[str, Any], over: dict[str, Any], digits: int = 0) -> str:
    """How much faster `row` is, of two methods or sources on equal workers."""
    return f"{over['median_us'] / row['median_us'] - 1:+.{digits}%}"


def busy(result: dict[str, Any], word: str) -> float:
    """The mean utilisation of the resources with this word in their name, of one method of a simulation."""
    shares = [share for name, share in result["utilisation"].items() if word in name]
    return sum(shares) / len(shares)


def as_mxnet_cuts(layers: LayerTable, servers: int) -> LayerTable:
    """The tensors as stock MXNet keeps them: those above 1,000,000 parameters are cut evenly over all servers."""
    rows: list[Layer] = []
    for row in layers:
        large = row.parameter_bytes > 4_000_000
        rows += LayerTable([row]).split(-(-row.parameter_bytes // servers)) if large else [row]
    return LayerTable(rows)
