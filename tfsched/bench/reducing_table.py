"""The table of steps that all-reduce: a block of rows for each number of workers, its bounds first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from tfsched.bench.describing import describe_blocks, describe_link, number
from tfsched.bench.steady import is_steady
from tfsched.bench.threads import describe_threads


def _bounds(result: dict[str, Any]) -> list[tuple[str, float]]:
    """What stands above a block's settings: name and seconds."""
    bounds, workers = result["bounds"], result["workers"]
    link_s = bounds["closed_form_s"]
    return [
        ("computing alone", bounds["compute_s"]),
        *([] if bounds.get("beside_s") is None else [("computing beside all-reduces", bounds["beside_s"])]),
        *([] if bounds.get("join_s") is None else [("joining and splitting gradients", bounds["join_s"])]),
        *([] if link_s is None else [(f"link, 2 x {workers - 1}/{workers}", link_s)]),
        *([] if bounds["tcp_s"] is None else [("the same bytes over TCP", bounds["tcp_s"])]),
        *([] if bounds.get("exchange_s") is None else [("tfsched's all-reduce", bounds["exchange_s"])]),
        *([] if bounds.get("pieces_s") is None else [("the same in p3's pieces", bounds["pieces_s"])]),
        ("stock all-reduce", bounds["all_reduce_s"]),
        ("max of both", bounds["lower_s"]),
    ]


def table_of(results: Sequence[dict[str, Any]]) -> Table:
    """The table of one model, from its results of one number of workers each.

    "/ lower" is by the larger one of computing and communicating: of the bounds' rows it is what share of it they are.
    """
    first = results[0]
    counts = [str(result["workers"]) for result in results]
    workers = counts[0] if len(counts) == 1 else f"{', '.join(counts[:-1])} and {counts[-1]}"
    loop = f" with loop {first['loop']}" if first["phase"] == "train" else ""
    title = (
        f"{first['model']} {first['phase']}, {workers} workers, {describe_link(first)}, "
        f"api {first['api']}{loop}, TensorFlow {first['tensorflow']}"
    )
    spread = ", ".join(f"{result['bounds']['compute_p95_over_p50']:.3f}" for result in results)
    # With several numbers of workers threads may differ.
    threads = dict.fromkeys(describe_threads(result["threads"]) for result in results)
    communicating = "the stock all-reduce alone"
    if first["bounds"]["closed_form_s"] is not None:
        megabytes = first["gradient_bytes"] / 1e6
        communicating = f"the link, which carries 2 (W - 1) / W of {megabytes:.1f} MB of gradients"
    caption = (
        f"/ lower: by the max of computing alone and {communicating}{describe_blocks(first['block'])}; computing alone has "
        f"p95/p50 {spread}; exchanged: tensors that tfsched all-reduced by themselves in a step; {'; '.join(threads)}"
    )
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    steady = is_steady(first["block"])
    table.add_column("W", justify="right")
    table.add_column("setting", overflow="fold", min_width=20)  # names with options are long and differ at their ends
    for heading in (
        *("median s", "p95/p50", "x vanilla", "/ lower"),
        *(["with ends"] if steady else []),
        *("samples/s", "exchanged"),
    ):
        table.add_column(heading, justify="right")
    for result in results:
        _add_block(table, result, steady)
    return table


def _add_block(table: Table, result: dict[str, Any], steady: bool) -> None:
    batch = "" if result["batch"] is None else f"batch {result['batch']}"
    table.add_row(str(result["workers"]), batch)
    for name, time_s in _bounds(result):
        table.add_row("", name, number(time_s), "", "", number(time_s / result["bounds"]["lower_s"]))
    for setting, row in result["settings"].items():
        table.add_row(
            "",
            setting,
            number(row["median_s"]),
            number(row["p95_over_p50"]),
            number(row["ratio_to_vanilla"], "{:.2f}"),
            number(row["bound_ratio"]),
            *([number(row["bound_ratio_with_ends"])] if steady else []),
            number(row["throughput"], "{:.1f}"),
            number(result["exchanged"][setting], "{:.0f}"),
        )
    table.add_section()
