"""Turns a measurement into the result object, a table and notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tfsched.bench import busy, predicting, reducing, reducing_table, stolen
from tfsched.bench.describing import describe_blocks, describe_hosts, describe_link, number
from tfsched.bench.links import REAL
from tfsched.bench.runner import BESIDE, BOTH, COMPUTE, PIECES, PULL, PUSH, Measurement
from tfsched.bench.settings import ALL_REDUCING, STRATEGY
from tfsched.bench.steady import is_steady
from tfsched.bench.threads import describe_threads
from tfsched.ordering import metrics

BASELINE = "vanilla"


def bounds_of(bounds_s: dict[str, list[float]]) -> dict[str, float | None]:
    """The bounds (s) from the medians of the parts that ran alone.

    lower = the busiest resource: computing, pulling or pushing (a link carries both directions at
    once). upper = all of them one after another. In phase forward nothing is pushed, so these are
    max(compute, communication) and compute + communication. `communication_s` is the busier
    direction; `pull_s` and `push_s` are the two. `beside_s` is no bound of the paper: computing while the links are busy
    with something else, for on one machine networking takes processor time from it. Nor is `both_s`: pulling and pushing at
    once, where each direction carries the other's acknowledgements too, nor `pieces_s`: the same in the pieces of p3, one
    after the other. `compute_p95_over_p50` is how much computing varies by itself; near the balance, steps may vary with it.
    """
    compute_s = float(np.median(bounds_s[COMPUTE]))
    pull_s = float(np.median(bounds_s[PULL]))
    push_s = float(np.median(bounds_s[PUSH])) if bounds_s.get(PUSH) else None
    communication_s = max(pull_s, push_s or 0.0)
    return {
        "compute_s": compute_s,
        "communication_s": communication_s,
        "lower_s": max(compute_s, communication_s),
        "upper_s": compute_s + pull_s + (push_s or 0.0),
        "pull_s": pull_s,
        "push_s": push_s,
        "beside_s": float(np.median(bounds_s[BESIDE])) if bounds_s.get(BESIDE) else None,
        "both_s": float(np.median(bounds_s[BOTH])) if bounds_s.get(BOTH) else None,
        "pieces_s": float(np.median(bounds_s[PIECES])) if bounds_s.get(PIECES) else None,
        "compute_p95_over_p50": float(np.percentile(bounds_s[COMPUTE], 95)) / compute_s,
    }


def _summary(
    steps_s: Sequence[float],
    whole_s: Sequence[float],
    taken_s: Sequence[float],
    finishes_s: list[list[float]],
    bounds: dict[str, Any],
    baseline_s: float | None,
    baseline_whole_s: float | None,
    samples_per_step: int | None,
    networking_busy: Sequence[float] | None,
) -> dict[str, Any]:
    median_s = float(np.median(steps_s))
    with_ends_s = float(np.median(whole_s))
    p95_s = float(np.percentile(steps_s, 95))
    return {
        "median_s": median_s,
        "p95_s": p95_s,
        "min_s": float(min(steps_s)),
        "steps_s": [float(step_s) for step_s in steps_s],
        "efficiency": metrics.efficiency(bounds["upper_s"], bounds["lower_s"], median_s),
        "ratio_to_vanilla": None if baseline_s is None else baseline_s / median_s,
        "straggler": metrics.straggler_effect(finishes_s) if finishes_s else None,
        "p95_over_p50": p95_s / median_s,
        "stolen_s": [float(lost_s) for lost_s in taken_s],
        "p95_over_p50_calm": stolen.calm_spread(steps_s, taken_s),
        "bound_ratio": median_s / bounds["lower_s"],
        "with_ends_s": with_ends_s,
        "ratio_to_vanilla_with_ends": None if baseline_whole_s is None else baseline_whole_s / with_ends_s,
        "bound_ratio_with_ends": with_ends_s / bounds["lower_with_ends_s"],
        "networking_busy": None if networking_busy is None else float(np.median(networking_busy)),
        "throughput": None if samples_per_step is None else samples_per_step / median_s,
    }


def build_result(measurement: Measurement, facts: dict[str, Any]) -> dict[str, Any]:
    """The JSON object of one model; `facts` holds model, phase, ps, workers, batch and the like."""

    def bounds_from(times_s: dict[str, list[float]]) -> dict[str, Any]:
        return reducing.bounds_of(times_s, facts) if facts["api"] in ALL_REDUCING else bounds_of(times_s)

    bounds = bounds_from(measurement.bounds_s)
    if facts["link"] == REAL and facts["ps_bytes"] and facts["bandwidth_bps"] is not None:
        bounds["link_s"] = _link_s(facts["ps_bytes"], facts["workers"], facts["bandwidth_bps"])
    # Whole blocks by whole blocks: the bounds' ends count where the steps' do.
    bounds["lower_with_ends_s"] = bounds_from({name: measurement.whole_s[name] for name in measurement.bounds_s})["lower_s"]
    return {
        **facts,
        "block": measurement.block,
        "rounds": len(measurement.bounds_s[COMPUTE]),
        "imbalance": _imbalance(facts["ps_bytes"]),
        "settings": {
            name: _summary(
                steps_s,
                measurement.whole_s[name],
                measurement.stolen_s[name],
                measurement.finishes_s[name],
                bounds,
                _median_of(measurement.steps_s, BASELINE),
                _median_of(measurement.whole_s, BASELINE),
                None if facts["batch"] is None else facts["batch"] * facts["workers"],
                measurement.networking_busy.get(name),
            )
            for name, steps_s in measurement.steps_s.items()
        },
        "bounds": bounds,
    }


def _median_of(times_s: dict[str, list[float]], name: str) -> float | None:
    return float(np.median(times_s[name])) if name in times_s else None


def _imbalance(ps_bytes: dict[str, int]) -> float | None:
    """The fullest parameter server's bytes by the mean; 1 is an even load. None where there is none."""
    if not ps_bytes:
        return None
    return max(ps_bytes.values()) / float(np.mean(list(ps_bytes.values())))


def _link_s(ps_bytes: dict[str, int], workers: int, bandwidth_bps: float) -> float:
    """Seconds for which the variables keep the busiest link of the stated rate: a worker's, or the fullest server's."""
    return max(sum(ps_bytes.values()), workers * max(ps_bytes.values())) * 8 / bandwidth_bps


def table_of(result: dict[str, Any]) -> Table:
    """The table of one model on parameter servers."""
    batch = "" if result["batch"] is None else f", batch {result['batch']}"
    title = (
        f"{result['model']} {result['phase']}{batch}, {describe_hosts(result)}, "
        f"{describe_link(result)}, api {result['api']}, "
        f"TensorFlow {result['tensorflow']}"
    )
    bounds = result["bounds"]
    several = "; a step is one scheduled function of a worker" if result["api"] == STRATEGY else ""
    steady = is_steady(result["block"])
    several += describe_blocks(result["block"])
    if result["ps"] > 1:
        several += f"; the fullest PS holds {result['imbalance']:.2f} times the mean"
    communicating = f"pull alone {bounds['pull_s']:.3f} s"
    communicating += "" if bounds.get("push_s") is None else f", push alone {bounds['push_s']:.3f} s"
    beside = "" if bounds.get("beside_s") is None else f"; compute beside communication {bounds['beside_s']:.3f} s"
    beside += "" if bounds.get("both_s") is None else f", pulling and pushing at once {bounds['both_s']:.3f} s"
    beside += "" if bounds.get("pieces_s") is None else f", the same in p3's pieces {bounds['pieces_s']:.3f} s"
    at_rate = "" if bounds.get("link_s") is None else f", at the links' rate {bounds['link_s']:.3f} s"
    caption = (
        f"bounds: lower {bounds['lower_s']:.3f} s, upper {bounds['upper_s']:.3f} s "
        f"(compute alone {bounds['compute_s']:.3f} s, p95/p50 {bounds['compute_p95_over_p50']:.3f}, "
        f"{communicating}{at_rate}{beside}){several}; {describe_threads(result['threads'])}"
    )
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    table.add_column("setting", overflow="fold")  # names with options are long and differ at their ends
    for heading in (
        *("median s", "p95 s", "p95/p50", "x vanilla", "E", "/ lower"),
        *(["/ lower, with ends"] if steady else []),
        *("straggler", "samples/s"),
    ):
        table.add_column(heading, justify="right")
    for name, row in result["settings"].items():
        table.add_row(
            name,
            number(row["median_s"]),
            number(row["p95_s"]),
            number(row["p95_over_p50"]),
            number(row["ratio_to_vanilla"], "{:.2f}"),
            number(row["efficiency"], "{:.2f}"),
            number(row["bound_ratio"]),
            *([number(row["bound_ratio_with_ends"])] if steady else []),
            number(row["straggler"], "{:.1%}"),
            number(row["throughput"], "{:.1f}"),
        )
    return table


def _predictions(result: dict[str, Any]) -> Table:
    """What the simulator says, beside what was measured."""
    table = Table(title=f"{result['model']}, {describe_hosts(result)}: predicted by the simulator", title_justify="left")
    table.add_column("setting", overflow="fold")
    for heading in ("median s", "predicted s", "error"):
        table.add_column(heading, justify="right")
    for name, row in result["settings"].items():
        error = number(row["prediction_error"], "{:+.1%}")
        table.add_row(name, number(row["median_s"]), number(row["predicted_s"]), error)
    return table


def print_results(results: Sequence[dict[str, Any]], console: Console) -> None:
    """Prints the tables and notes of one model: of several numbers of workers that all-reduce one table."""
    if results[0]["api"] in ALL_REDUCING:
        console.print(reducing_table.table_of(results))
    for result in results:
        if result["api"] not in ALL_REDUCING:
            console.print(table_of(result))
        if any("predicted_s" in row for row in result["settings"].values()):
            console.print(_predictions(result))
        whose = f"{describe_hosts(result)}: " if len(results) > 1 else ""
        settings = result["settings"]
        notes = [*stolen.note(settings), *busy.note(settings), *predicting.note(settings)]
        for note in [*result.get("notes", []), *notes]:
            console.print(f"note: {whose}{note}", highlight=False)
