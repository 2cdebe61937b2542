"""Checks TicTac's claims on our own runs: E predicts the step time, ordering makes it consistent.

**E against step time.** N stock steps are traced. Each step's E comes from that step's own trace,
never from bounds shared by all steps, which would make E a linear function of the step time and
R² trivially 1:

* upper = time in use of the worker's computing resource + sum of its transfers' service times, per direction;
* lower = the largest of these (computing, link in, link out);
* E = (upper - makespan) / (upper - lower), makespan = first start to last end in the trace.

A transfer's service time is the time it had the link: end_k - max(end_{k-1}, start_k) in order of
completion. R² is that of the least-squares line of E over the normalised step time.

**Consistency.** From the untraced steps of the interleaved run: normalised step time = fastest step
of all settings / step (1 is the fastest); `p95_normalised` is what 95% of the steps reach, that is
the fastest step / 95th percentile of the step times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tfsched.bench.errors import BenchError
from tfsched.bench.op_times import StepSample
from tfsched.ordering import metrics

PAPER = {"r_squared": 0.98, "p95_normalised": {"vanilla": 0.634, "tio": 0.998, "tao": 0.998}}


def check_claims(samples: list[StepSample], steps_s: dict[str, list[float]]) -> dict[str, Any]:
    """The `claims` object of a result, from traced stock steps and untraced steps by setting."""
    if len(samples) < 3:
        raise BenchError(f"{len(samples)} traced steps are too few for a regression: trace >= 3")
    efficiencies = [sample.efficiency for sample in samples]
    makespans_s = [sample.makespan_s for sample in samples]
    normalised = metrics.normalized_step_times(makespans_s)
    slope, intercept = np.polyfit(normalised, efficiencies, 1)
    fastest_s = min(min(times_s) for times_s in steps_s.values())
    return {
        "steps": len(samples),
        "r_squared": float(metrics.r_squared(normalised, efficiencies)),
        "r_squared_step_time": float(metrics.r_squared(makespans_s, efficiencies)),
        "slope": float(slope),
        "intercept": float(intercept),
        "efficiencies": [float(value) for value in efficiencies],
        "normalised_step_times": [float(value) for value in normalised],
        "makespans_s": makespans_s,
        "compute_s": [sample.compute_s for sample in samples],
        "links_s": [sample.links_s for sample in samples],
        "cdf": {
            name: [float(value) for value in metrics.normalized_step_times(times_s, fastest_s)]
            for name, times_s in steps_s.items()
        },
        "p95_normalised": {name: fastest_s / metrics.percentile(times_s, 95) for name, times_s in steps_s.items()},
        "paper": PAPER,
    }


def print_claims(result: dict[str, Any], console: Console) -> None:
    """Prints our figures beside the paper's."""
    claims = result["claims"]
    table = Table(title=f"TicTac's claims on {result['model']}", title_justify="left")
    table.add_column("claim")
    table.add_column("here", justify="right")
    table.add_column("paper", justify="right")
    table.add_row(
        f"R² of E against normalised step time, {claims['steps']} traced vanilla steps",
        f"{claims['r_squared']:.3f}",
        f"{PAPER['r_squared']}",
    )
    for name, value in claims["p95_normalised"].items():
        paper = PAPER["p95_normalised"].get(name)  # type: ignore[attr-defined]
        table.add_row(
            f"normalised step time that 95% of {name}'s {len(claims['cdf'][name])} steps reach",
            f"{value:.3f}",
            "-" if paper is None else f"{paper}",
        )
    console.print(table)
