"""Draws the pictures: step times per setting with the bounds, and their cumulative distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tfsched.bench.describing import describe_hosts


def _new_figure(rows: int) -> tuple[Figure, Any]:
    # A figure of its own canvas: pyplot would choose a backend for the whole program.
    figure = Figure(figsize=(11, 4.2 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, 2, squeeze=False)


def cumulative(axes: Axes, name: str, values: Any) -> None:
    """Adds one curve: the part of the steps at or below each value."""
    ordered = np.sort(np.asarray(values))
    heights = np.arange(len(ordered) + 1) / len(ordered)
    axes.step(np.concatenate([ordered[:1], ordered]), heights, where="post", label=name)


def _draw_result(result: dict[str, Any], boxes: Axes, curves: Axes) -> None:
    names = list(result["settings"])
    steps_s = [result["settings"][name]["steps_s"] for name in names]
    boxes.boxplot(steps_s)
    boxes.set_xticks(range(1, len(names) + 1), names)
    bounds = result["bounds"]
    boxes.axhline(bounds["lower_s"], color="tab:green", ls="--", label="lower bound")
    boxes.axhline(bounds["upper_s"], color="tab:red", ls="--", label="upper bound")
    boxes.set_ylabel("step time (s)")
    boxes.set_ylim(bottom=0)
    boxes.legend()
    boxes.set_title(
        f"{result['model']} {result['phase']}, batch {result['batch'] or '-'}, {describe_hosts(result)}",
        fontsize=10,
    )
    for name, times_s in zip(names, steps_s, strict=True):
        cumulative(curves, name, times_s)
    curves.axvline(bounds["lower_s"], color="tab:green", ls="--")
    curves.set_xlabel("step time (s)")
    curves.set_ylabel("part of the steps")
    curves.legend()
    if result["link"] == "emulated":
        curves.set_title("emulated link", fontsize=10)


def save_plot(results: list[dict[str, Any]], path: str) -> None:
    """Writes one row of pictures per model to a PNG."""
    figure, axes = _new_figure(len(results))
    for row, result in enumerate(results):
        _draw_result(result, axes[row][0], axes[row][1])
    figure.savefig(path, dpi=120, format="png")


def save_claims_plot(results: list[dict[str, Any]], path: str) -> None:
    """Writes E against normalised step time and the CDF of the paper's claims to a PNG."""
    figure, axes = _new_figure(len(results))
    for row, result in enumerate(results):
        claims = result["claims"]
        fit, curves = axes[row]
        normalised = np.array(claims["normalised_step_times"])
        fit.scatter(normalised, claims["efficiencies"], s=9)
        line = np.array([normalised.min(), normalised.max()])
        fit.plot(line, claims["slope"] * line + claims["intercept"], color="tab:red")
        fit.set_title(
            f"{result['model']}: R² = {claims['r_squared']:.3f} over {claims['steps']} vanilla "
            f"steps (paper: {claims['paper']['r_squared']})",
            fontsize=10,
        )
        fit.set_xlabel("normalised step time (fastest / step)")
        fit.set_ylabel("ordering efficiency E")
        for name, values in claims["cdf"].items():
            cumulative(curves, f"{name}, p95 {claims['p95_normalised'][name]:.3f}", values)
        curves.set_xlabel("normalised step time (fastest / step)")
        curves.set_ylabel("part of the steps")
        curves.legend()
    figure.savefig(path, dpi=120, format="png")
