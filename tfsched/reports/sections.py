"""The sections of a report, each from plain data: benches, sources, methods, sweeps, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfsched import ordering
from tfsched.ordering import Dag
from tfsched.reports import pictures
from tfsched.reports.page import Page
from tfsched.reports.spans import Span


def benches(page: Page, found: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """What was measured: a table and the distribution of step times of each bench."""
    for name, result in found:
        about = [str(result.get("phase", "")), f"batch {result.get('batch', '?')}", f"{result.get('ps', '?')} PS"]
        about += [f"{result.get('workers', '?')} worker(s)", f"link {result.get('link', '?')}"]
        if isinstance(result.get("bandwidth_bps"), (int, float)):
            about.append(f"{result['bandwidth_bps'] / 1e9:g} Gbit/s")
        page.heading(f"{result['model']} ({name})")
        page.text(", ".join(about))
        settings: dict[str, dict[str, Any]] = result["settings"]
        medians = {setting: _median(row["steps_s"]) for setting, row in settings.items()}
        rows = []
        for setting, row in settings.items():
            shown = [_shown(row.get(key), "{:.3f}") for key in ("efficiency", "ratio_to_vanilla", "bound_ratio")]
            rows.append([setting, str(len(row["steps_s"])), f"{medians[setting]:.4f}", *shown])
        best = min(range(len(rows)), key=lambda i: medians[rows[i][0]], default=None)
        page.table(["setting", "steps", "median s", "E", "x vanilla", "/ lower bound"], rows, best)
        curves = {setting: row["steps_s"] for setting, row in settings.items()}
        page.picture(pictures.png(pictures.cumulative(curves, "measured step time (s)")), f"step times of {name}")


def source(page: Page, name: str, dag: Dag) -> None:
    """What a DAG is made of, and between which bounds any order lies."""
    recvs = dag.recvs
    times_us = dag.times_us()
    links = {op.resource for op in recvs}
    on_links_us = sum(times_us[i] for i in dag.recv_indices)
    upper_us, lower_us = ordering.upper_bound_us(dag), ordering.lower_bound_us(dag)
    sizes = sorted(((op.size_bytes or 0, op.name) for op in recvs), reverse=True)
    total_bytes = sum(size for size, _ in sizes)
    page.heading(name)
    page.table(
        ["what", "value"],
        [
            ["ops", f"{len(dag.ops):,}"],
            ["transfers", f"{len(recvs):,} over {len(links)} link(s)"],
            ["bytes", f"{total_bytes:,}"],
            ["largest transfers", ", ".join(f"{one} ({size:,})" for size, one in sizes[:3]) or "none"],
            ["computing alone", f"{(sum(times_us) - on_links_us) / 1e3:,.3f} ms"],
            ["transferring alone", f"{on_links_us / 1e3:,.3f} ms"],
            ["lower bound of a step", f"{lower_us / 1e3:,.3f} ms"],
            ["upper bound of a step", f"{upper_us / 1e3:,.3f} ms"],
            ["S, what an ideal order can bring", f"{ordering.speedup(upper_us, lower_us):.3f}"],
        ],
    )


def optimum(page: Page, name: str, result: dict[str, Any]) -> None:
    """One worker's step under each ordering, beside the best that is proven (`tfsched order --compare`)."""
    page.heading(name)
    known = result["optimum"]
    rows = sorted((row for row in result["orderings"] if "makespan_us" in row), key=lambda row: row["makespan_us"])
    page.table(
        ["ordering", "step ms", "over the bound", "E"],
        [
            [row["ordering"], f"{row['makespan_us'] / 1e3:,.3f}", f"{row['over_bound']:+.2%}", f"{row['efficiency']:.3f}"]
            for row in rows
        ],
    )
    proven = "proven" if known["proven"] else f"best found: {known['makespan_us'] / 1e3:,.3f} ms"
    page.text(
        f"No order of whole transfers takes less than {known['bound_us'] / 1e3:,.3f} ms ({proven}). "
        "One worker with its links to itself; orderings that cut transfers may be below.",
        note=True,
    )


def methods(page: Page, header: Sequence[str], rows: Sequence[Sequence[str]], best: int) -> None:
    """The table of all methods on the described cluster."""
    page.table(["method", *header], rows, best)


def gantts(page: Page, panels: Mapping[str, Sequence[Span]], title: str) -> None:
    """One timeline a method."""
    page.picture(pictures.png(pictures.gantt(panels, title)), f"timelines: {title}")


def distribution(page: Page, curves: Mapping[str, Sequence[float]], what: str) -> None:
    """The distribution of simulated step times."""
    in_ms = {name: [value / 1e3 for value in values] for name, values in curves.items()}
    page.picture(pictures.png(pictures.cumulative(in_ms, "simulated step time (ms)")), f"distribution: {what}")


def path(page: Page, name: str, segments: Sequence[Any], rows: int = 15) -> None:
    """The longest segments of a critical path, in the order of time."""
    longest = sorted(segments, key=lambda s: s.start_us - s.end_us)[:rows]
    page.text(f"Critical path of {name}: the longest {len(longest)} of {len(segments)} segments.")
    page.table(
        ["from ms", "to ms", "resource", "op", "why then"],
        [
            [f"{s.start_us / 1e3:,.3f}", f"{s.end_us / 1e3:,.3f}", s.resource, s.op, s.why]
            for s in sorted(longest, key=lambda s: s.start_us)
        ],
    )


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return float(ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2)


def _shown(value: Any, form: str) -> str:
    return form.format(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else "-"
