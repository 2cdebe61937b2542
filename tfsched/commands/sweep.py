"""``tfsched sweep``: bandwidth x workers x method, as a table, CSV and a plot with one line a method."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from tfsched.commands import clusters, inputs
from tfsched.commands.files import write_bytes, write_text
from tfsched.commands.flags import CommandFlags, UsageError
from tfsched.commands.showing import plain, progress, say, table
from tfsched.commands.simulate import what_is_simulated
from tfsched.simulator import Cluster, Method, Workload, simulate

FORMAT = "tfsched-sweep/1"
COLUMNS = ("bandwidth_bps", "workers", "servers", "method", "median_us", "p95_us", "efficiency", "samples_per_s", "speedup")


def define(flags: CommandFlags) -> None:
    inputs.define(flags)
    clusters.define(flags, several=True)
    flags.string("csv", "", "write the rows to this CSV file")
    flags.string("plot", "", "draw the sweep into this PNG")
    flags.string("out", "", "write the result as JSON to this file")
    flags.boolean("json", False, "print the result as JSON")
    flags.boolean("quiet", False, "print nothing but errors and --json")


def run(flags: CommandFlags, arguments: list[str]) -> int:
    chosen = clusters.chosen_methods(flags)
    points = grid(flags)
    workload = inputs.workload_of(inputs.read_source(flags, arguments), flags)
    batch = inputs.batch_of(flags)
    with progress(flags.quiet) as bar:
        task = bar.add_task("sweeping", total=len(points) * len(chosen))
        rows = sweep(workload, points, chosen, flags, batch, lambda: bar.advance(task))
    content = {
        "format": FORMAT,
        "what": what_is_simulated(flags, arguments),
        "cluster": points[0].to_yaml(),
        "iterations": flags.iterations,
        "seed": flags.seed,
        "rows": rows,
    }
    text = json.dumps(content, indent=1, allow_nan=False) if flags.out or flags.json else ""
    if flags.out:
        write_text(flags.out, text + "\n")
    if flags.csv:
        write_text(flags.csv, csv_of(rows))
    if flags.plot:
        from tfsched.reports import pictures

        write_bytes(flags.plot, pictures.png(picture(content)))
    if flags.json:
        print(text)
    elif not flags.quiet:
        show(content, list(chosen))
    return 0


def grid(flags: CommandFlags) -> list[Cluster]:
    """The clusters of the sweep, workers outermost. Raises what Cluster raises, before anything is simulated."""
    cluster = clusters.base_cluster(flags)
    points = []
    for text in flags.workers:
        if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
            raise UsageError(f"--workers has {text!r}; give numbers above zero, as in 1,4,16.")
        workers = int(text)
        for bandwidth in flags.bandwidth:
            changes: dict[str, Any] = {"workers": workers, "bandwidth_bps": inputs.parse_bandwidth(bandwidth)}
            if changes["bandwidth_bps"] is None:
                raise UsageError("--bandwidth has an empty item; give bandwidths as in 1gbit,10gbit.")
            if flags.servers:
                changes["servers"] = clusters.servers_of(flags.servers, workers)
            points.append(clusters.replace(cluster, changes))
    if not points:
        raise UsageError("--workers or --bandwidth is empty; give at least one of each.")
    return points


def sweep(
    workload: Workload,
    points: Sequence[Cluster],
    chosen: dict[str, Method],
    flags: CommandFlags,
    batch: int,
    done: Any,
) -> list[dict[str, Any]]:
    """One row for each point and method; `speedup` is over the first method at the same point."""
    rows: list[dict[str, Any]] = []
    for cluster in points:
        first_us = None
        for name, method in chosen.items():
            result = simulate(workload, cluster, method, iterations=flags.iterations, warmup=flags.warmup, seed=flags.seed)
            first_us = result.median_us if first_us is None else first_us
            rows.append(
                {
                    "bandwidth_bps": cluster.bandwidth_bps,
                    "workers": cluster.workers,
                    "servers": cluster.servers if cluster.architecture == "ps" else 0,
                    "method": name,
                    "median_us": result.median_us,
                    "p95_us": result.p95_us,
                    "efficiency": result.efficiency,
                    # Without a batch (a file), steps are counted: a sample is a step of one worker.
                    "samples_per_s": cluster.workers * max(batch, 1) / result.median_us * 1e6 if result.median_us else None,
                    "speedup": first_us / result.median_us if result.median_us else None,
                }
            )
            done()
    return rows


def csv_of(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as CSV text."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def picture(content: dict[str, Any]) -> Any:
    """Over bandwidth with a panel for each number of workers; over workers where there is one bandwidth only."""
    from tfsched.reports import pictures

    rows = content["rows"]
    bandwidths = {row["bandwidth_bps"] for row in rows}
    over_workers = len(bandwidths) == 1
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in rows:
        if row["samples_per_s"] is None:
            continue
        gbps = row["bandwidth_bps"] / 1e9
        title = f"{gbps:g} Gbit/s" if over_workers else f"{row['workers']} worker(s)"
        x = float(row["workers"]) if over_workers else gbps
        panels.setdefault(title, {}).setdefault(row["method"], []).append((x, row["samples_per_s"]))
    return pictures.lines(panels, "workers" if over_workers else "Gbit/s", "samples a second, all workers")


def show(content: dict[str, Any], names: list[str]) -> None:
    rows = content["rows"]
    made = table(f"{content['what']}: samples a second of all workers (x {names[0]})", "workers", "Gbit/s", *names)
    cells: dict[tuple[int, float], list[str]] = {}
    for row in rows:
        shown = "-" if row["samples_per_s"] is None else f"{row['samples_per_s']:,.1f} ({row['speedup']:.2f})"
        cells.setdefault((row["workers"], row["bandwidth_bps"]), []).append(shown)
    for (workers, bandwidth_bps), values in cells.items():
        made.add_row(str(workers), f"{bandwidth_bps / 1e9:g}", *map(plain, values))
    say(made)
