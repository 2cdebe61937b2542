"""PACE on the wire: the rows of docs/results.md in which it trains beside first in, first out."""

from __future__ import annotations

import json
import pathlib

from .common import FREE, table

RESULTS = pathlib.Path(__file__).resolve().parents[1] / "results"
ROWS = ("allreduce-planners", "allreduce-planners-500mbit")


HEADER = ("model", "links", "stock TensorFlow", "`fifo`", "`pace`", "PACE over stock", "over `fifo`")


def measured() -> list[list[str]]:
    """Rows under `HEADER`: what `python benchmarks/results.py --measure` has measured of two workers that all-reduce."""
    lines = []
    for row in ROWS:
        for result in json.loads((RESULTS / f"{row}.json").read_text())["results"]:
            stock, fifo, pace = (result["settings"][name]["median_s"] for name in ("vanilla", f"fifo{FREE}", f"pace{FREE}"))
            lines.append(
                [
                    result["model"],
                    f"{result['bandwidth_bps'] / 1e6:,.0f} Mbit/s",
                    *(f"{seconds:.3f}" for seconds in (stock, fifo, pace)),
                    f"{stock / pace - 1:+.0%}",
                    f"{fifo / pace - 1:+.0%}",
                ]
            )
    return lines


def wire() -> None:
    print("figures 8 and 9 on the wire: seconds a step, two workers, across the barrier\n")
    table(HEADER, measured())
