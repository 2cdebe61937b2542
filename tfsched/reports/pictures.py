"""The pictures: Gantt charts, cumulative distributions, and lines over bandwidth or workers."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from tfsched.reports.spans import COMPUTE, Span

# More rectangles than pixels make a picture slow and no clearer: shorter spans than this part of the width are merged.
_FINEST = 1 / 4000
_TRACKS = 12


def figure(width: float, height: float) -> Figure:
    # A canvas of its own: pyplot would choose a backend for the whole program.
    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


def png(made: Figure) -> bytes:
    """The picture as PNG."""
    out = io.BytesIO()
    made.savefig(out, dpi=110, format="png")
    return out.getvalue()


def gantt(panels: Mapping[str, Sequence[Span]], title: str = "") -> Figure:
    """One panel a method on one time axis; a row a resource, computing in blue, links in orange, alternately dark and light.

    Of many resources, those that are busiest are drawn.
    """
    kept = {name: _busiest(spans) for name, spans in panels.items()}
    rows = [max(1, len({span.resource for span in spans})) for spans in kept.values()]
    made = figure(12, 0.9 + sum(0.42 * count + 0.65 for count in rows))
    axes = made.subplots(len(kept), 1, sharex=True, squeeze=False, height_ratios=rows)[:, 0]
    end_ms = max((span.end_us for spans in kept.values() for span in spans), default=1.0) / 1e3 or 1.0
    for axis, (name, spans) in zip(axes, kept.items(), strict=True):
        computes = _computes(spans)
        resources = sorted(computes) + sorted({span.resource for span in spans} - computes)
        for row, resource in enumerate(resources):
            mine = sorted((span for span in spans if span.resource == resource), key=lambda span: span.start_us)
            _draw_row(axis, mine, len(resources) - 1 - row, end_ms)
        last_ms = max((span.end_us for span in spans), default=0.0) / 1e3
        axis.axvline(last_ms, color="black", lw=0.8, ls="--")
        axis.set_title(f"{_plain(name)}: {last_ms:,.2f} ms", fontsize=9, loc="left")
        axis.set_yticks(range(len(resources)), [_plain(r, 32) for r in reversed(resources)], fontsize=8)
        axis.set_ylim(-0.6, len(resources) - 0.4)
    if len(axes):
        axes[-1].set_xlim(0, end_ms * 1.01)
        axes[-1].set_xlabel("ms")
    if title:
        made.suptitle(_plain(title, 120), fontsize=10)
    return made


def _computes(spans: Sequence[Span]) -> set[str]:
    return {span.resource for span in spans if span.kind == COMPUTE}


def _busiest(spans: Sequence[Span]) -> list[Span]:
    busy: dict[str, float] = {}
    for span in spans:
        busy[span.resource] = busy.get(span.resource, 0.0) + span.end_us - span.start_us
    chosen = set(sorted(busy, key=lambda name: -busy[name])[:_TRACKS])
    return [span for span in spans if span.resource in chosen]


def _draw_row(axis: Any, spans: Sequence[Span], row: int, width_ms: float) -> None:
    colours = ("#1f4e8c", "#7aa6dc") if spans and spans[0].kind == COMPUTE else ("#b35900", "#f5b066")
    boxes: tuple[list[Any], list[Any]] = ([], [])
    finest_ms = width_ms * _FINEST
    stretches: list[list[float]] = []  # [start, end], what is too short to be seen joined to what is beside it
    for span in spans:
        start_ms, end_ms = span.start_us / 1e3, span.end_us / 1e3
        short = end_ms - start_ms < finest_ms
        if stretches and short and start_ms - stretches[-1][1] < finest_ms:
            stretches[-1][1] = end_ms
        else:
            stretches.append([start_ms, end_ms])
    for number, (start_ms, end_ms) in enumerate(stretches):
        boxes[number % 2].append(
            [(start_ms, row - 0.38), (start_ms, row + 0.38), (end_ms, row + 0.38), (end_ms, row - 0.38)]
        )
    for colour, mine in zip(colours, boxes, strict=True):
        axis.add_collection(PolyCollection(mine, facecolors=colour, linewidths=0))


def cumulative(curves: Mapping[str, Sequence[float]], label: str) -> Figure:
    """One curve a method: the part of the values at or below each."""
    made = figure(8, 4.2)
    axis = made.subplots()
    for name, values in curves.items():
        ordered = np.sort(np.asarray(values, dtype=float))
        if len(ordered):
            heights = np.arange(len(ordered) + 1) / len(ordered)
            axis.step(np.concatenate([ordered[:1], ordered]), heights, where="post", label=_plain(name))
    axis.set_xlabel(label)
    axis.set_ylabel("part of the steps")
    if curves:
        axis.legend(fontsize=8)
    return made


def lines(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], x_label: str, y_label: str, log_x: bool = False
) -> Figure:
    """One panel a key, in it one line a method through its (x, y)."""
    columns = min(3, max(1, len(panels)))
    count = -(-len(panels) // columns) or 1
    made = figure(5.2 * columns + 1, 4.2 * count)
    axes = made.subplots(count, columns, squeeze=False).ravel()
    for axis, (title, methods) in zip(axes, panels.items(), strict=False):
        for number, (name, points) in enumerate(methods.items()):
            ordered = sorted(points)
            marker = "osv^D*xP"[number % 8]
            axis.plot([x for x, _ in ordered], [y for _, y in ordered], marker=marker, ms=4, lw=1.3, label=_plain(name))
        if log_x:
            axis.set_xscale("log")
        axis.set_title(_plain(title, 60), fontsize=9)
        axis.set_xlabel(x_label)
        axis.set_ylabel(y_label)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    if panels:
        axes[0].legend(fontsize=7)
    return made


def _plain(text: str, limit: int = 48) -> str:
    """Text as it is: matplotlib would read $...$ as a formula. Shortened in the middle."""
    short = text if len(text) <= limit else text[: limit // 2 - 1] + "…" + text[-limit // 2 + 1 :]
    return "".join(c if c.isprintable() else "?" for c in short).replace("\\", "/").replace("$", r"\$")
