"""``tfsched simulate``: one model on one cluster under several methods."""

from __future__ import annotations

import json
import re
from typing import Any

from tfsched.commands import beside, clusters, inputs
from tfsched.commands.files import write_bytes, write_text
from tfsched.commands.flags import CommandFlags
from tfsched.commands.showing import plain, progress, say, table
from tfsched.simulator import Cluster, Result, simulate

FORMAT = "tfsched-simulation/1"


def define(flags: CommandFlags) -> None:
    inputs.define(flags)
    clusters.define(flags, several=False)
    beside.define(flags)
    flags.string("timeline", "", "write the timelines for Perfetto to this file; of several methods, one file each")
    flags.string("plot", "", "draw the timelines as Gantt charts into this PNG")
    flags.string("out", "", "write the result as JSON to this file")
    flags.boolean("json", False, "print the result as JSON")
    flags.integer("rows", 12, "rows of the critical path and of the waits to show; 0: none", lower=0)
    flags.boolean("quiet", False, "print nothing but errors and --json")


def run(flags: CommandFlags, arguments: list[str]) -> int:
    chosen = clusters.chosen_methods(flags)
    source = inputs.read_source(flags, arguments)
    cluster = clusters.one_cluster(flags, source)
    source = clusters.placed(flags, cluster, source)
    workload = inputs.workload_of(source, flags)
    if flags.beside:
        return beside.run(flags, workload, cluster, chosen, content_of(flags, arguments, cluster, {}))
    results: dict[str, Result] = {}
    with progress(flags.quiet) as bar:
        task = bar.add_task("simulating", total=len(chosen))
        for name, method in chosen.items():
            bar.update(task, description=f"simulating {plain(name)}")
            results[name] = simulate(
                workload,
                cluster,
                method,
                iterations=flags.iterations,
                warmup=flags.warmup,
                seed=flags.seed,
                timeline=bool(flags.timeline or flags.plot),
            )
            bar.advance(task)
    content = content_of(flags, arguments, cluster, results)
    if flags.timeline:
        write_timelines(flags.timeline, results)
    if flags.plot:
        from tfsched.reports import pictures

        title = f"{content['what']}, {describe(cluster)}"
        write_bytes(flags.plot, pictures.png(pictures.gantt({n: last_step(r) for n, r in results.items()}, title)))
    text = json.dumps(content, indent=1, allow_nan=False) if flags.out or flags.json else ""
    if flags.out:
        write_text(flags.out, text + "\n")
    if flags.json:
        print(text)
    elif not flags.quiet:
        show(flags, content, results)
    return 0


def content_of(flags: CommandFlags, arguments: list[str], cluster: Cluster, results: dict[str, Result]) -> dict[str, Any]:
    """The JSON object of one run."""
    return {
        "format": FORMAT,
        "what": what_is_simulated(flags, arguments),
        "cluster": cluster.to_yaml(),
        "description": describe(cluster),
        "iterations": flags.iterations,
        "seed": flags.seed,
        "methods": {name: result.to_json() for name, result in results.items()},
    }


def what_is_simulated(flags: CommandFlags, arguments: list[str]) -> str:
    """The model or file, and the phase."""
    if flags.model:
        return f"{flags.model} {flags.phase}, batch {inputs.batch_of(flags)}"
    return f"{arguments[0]}"


def describe(cluster: Cluster) -> str:
    """The cluster in a few words."""
    servers = "" if cluster.all_reduces else f", {cluster.servers} server(s)"
    own = cluster.worker_bandwidth_bps
    spread = f" of {min(own) / 1e9:g} to {max(own) / 1e9:g} Gbit/s" if own else ""
    return (
        f"{cluster.workers} worker(s){spread}{servers}, {cluster.architecture}, {cluster.bandwidth_bps / 1e9:g} Gbit/s, "
        f"start-up {cluster.startup_us:g} µs, {'barrier' if cluster.barrier else 'no barrier'}"
    )


def show(flags: CommandFlags, content: dict[str, Any], results: dict[str, Result]) -> None:
    made = table(f"{content['what']}: {content['description']}", "method", *HEADINGS)
    first = next(iter(results.values()))
    for name, result in results.items():
        made.add_row(plain(name), *row_of(result, first))
    say(made)
    if not flags.rows:
        return
    name, result = next(reversed(results.items()))
    made = table(f"critical path of {name}", "from ms", "to ms", "resource", "op", "why then")
    path = joined(result.critical_path)
    longest = sorted(path, key=lambda s: s.start_us - s.end_us)[: flags.rows]
    for segment in sorted(longest, key=lambda s: s.start_us):
        start, end = segment.start_us / 1e3, segment.end_us / 1e3
        made.add_row(f"{start:,.3f}", f"{end:,.3f}", plain(segment.resource), plain(segment.op), plain(segment.why))
    say(made)
    if len(path) > flags.rows:
        say(f"the longest {flags.rows} of {len(path)} segments (--rows)")
    waits = sorted(result.waits_us.items(), key=lambda item: -item[1])
    waits = [(layer, wait_us) for layer, wait_us in waits[: flags.rows] if wait_us > 0]
    if waits:
        made = table(
            f"what computing waited for under {name}, in the mean of a step and worker", "op", "wait ms", "of the step"
        )
        for layer, wait_us in waits:
            made.add_row(
                plain(layer), f"{wait_us / 1e3:,.3f}", f"{wait_us / result.median_us:.1%}" if result.median_us else "-"
            )
        say(made)


HEADINGS = ("median ms", "p95 ms", "x first", "E", "straggler", "compute busy", "busiest link")


def row_of(result: Result, first: Result) -> list[str]:
    """One method's row under HEADINGS."""
    compute = [share for name, share in result.utilisation.items() if "compute" in name]
    links = [share for name, share in result.utilisation.items() if "compute" not in name]
    return [
        f"{result.median_us / 1e3:,.3f}",
        f"{result.p95_us / 1e3:,.3f}",
        f"{first.median_us / result.median_us:.3f}" if result.median_us else "-",
        f"{result.efficiency:.3f}",
        f"{result.straggler:.1%}",
        f"{sum(compute) / len(compute):.0%}" if compute else "-",
        f"{max(links):.0%}" if links else "-",
    ]


def joined(path: Any) -> list[Any]:
    """The critical path with neighbours on one resource as one segment, in µs from its own beginning."""
    result: list[Any] = []
    count = 1
    begin_us = path[0].start_us if path else 0.0
    path = [s._replace(start_us=s.start_us - begin_us, end_us=s.end_us - begin_us) for s in path]
    for segment in path:
        if result and result[-1].resource == segment.resource and result[-1].end_us == segment.start_us:
            count += 1
            first = result[-1].op.partition(" ... ")[0]
            result[-1] = result[-1]._replace(op=f"{first} ... {segment.op} ({count} ops)", end_us=segment.end_us)
        else:
            result.append(segment)
            count = 1
    return result


def last_step(result: Result) -> list[Any]:
    """What happens at the first worker from one step's first event to the next one's, in µs from there."""
    from tfsched.reports.spans import COMPUTE, LINK, Span

    mine = [event for event in result.events if not {"w0", "ring"}.isdisjoint(re.split("[>/]", event.resource))]
    first_us: dict[int, float] = {}
    for event in mine:
        first_us[event.step] = min(event.start_us, first_us.get(event.step, event.start_us))
    last = max(first_us, default=0)
    # Across the barrier, steps overlap: the window is as long as a step, and other steps may show in it.
    begin_us = first_us.get(last - 1, first_us.get(last, 0.0))
    end_us = first_us[last] if last - 1 in first_us else result.end_us
    return [
        Span(
            event.op,
            event.resource,
            COMPUTE if "compute" in event.resource else LINK,
            max(event.start_us, begin_us) - begin_us,
            min(event.end_us, end_us) - begin_us,
        )
        for event in mine
        if event.end_us > begin_us and event.start_us < end_us
    ]


def write_timelines(path: str, results: dict[str, Result]) -> None:
    """One file of one method; of several, the method's name goes before the extension."""
    if len(results) == 1:
        write_text(path, json.dumps(next(iter(results.values())).to_perfetto(), allow_nan=False))
        return
    stem, dot, extension = path.rpartition(".")
    for name, result in results.items():
        own = "".join(c if c.isalnum() or c in "-_.+" else "_" for c in name)
        target = f"{stem}.{own}.{extension}" if dot else f"{path}.{own}"
        write_text(target, json.dumps(result.to_perfetto(), allow_nan=False))
