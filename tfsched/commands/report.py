"""``tfsched report DIR``: one HTML page of what was measured, what it is made of, and what every method would bring."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from tfsched import ordering
from tfsched.commands import clusters, comparing, inputs, simulate, sweep
from tfsched.commands.collecting import PLAN, Found, collect
from tfsched.commands.files import FileError, write_text
from tfsched.commands.flags import CommandFlags, UsageError
from tfsched.commands.predicting import decide
from tfsched.commands.showing import plain, progress
from tfsched.ordering import Dag, Plan
from tfsched.ordering.layers import LayerTable
from tfsched.ordering.plan import plan_of
from tfsched.reports import pictures, sections
from tfsched.reports.page import Page
from tfsched.simulator import Cluster, Method, Result
from tfsched.simulator import simulate as run_simulation
from tfsched.version import __version__

# Seconds for the search of one DAG's optimum.
LIMIT_S = 3.0
# The sweep that a report makes where the directory has none: the cluster's own bandwidth and around it.
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


def define(flags: CommandFlags) -> None:
    inputs.define(flags)
    clusters.define(flags, several=False)
    flags.string("out", "", "write the page to this file; empty: report.html in the directory")
    flags.string("plan", "", "write the recommended plan to this file; empty: recommended-plan.json in the directory")
    flags.boolean("sweep", True, "simulate other bandwidths as well, where the directory holds no sweep")
    flags.boolean("json", False, "print a summary as JSON")
    flags.boolean("quiet", False, "print nothing but errors and --json")


def run(flags: CommandFlags, arguments: list[str]) -> int:
    if len(arguments) != 1:
        raise UsageError(f"tfsched report takes one directory and got {len(arguments)}: {' '.join(arguments)}")
    directory = arguments[0]
    chosen = clusters.chosen_methods(flags)
    clusters.one_cluster(flags)  # a wrong flag is said before files are read
    found = collect(directory)
    if flags.model:
        found.sources.insert(0, (f"{flags.model}, {flags.phase}", inputs.read_source(flags, [])))
    if not found.anything():
        reasons = "".join(f"; {name}: {reason}" for name, reason in list(found.unused.items())[:3])
        raise FileError(
            f"{directory} holds nothing to report on{reasons}; put a bench, trace, DAG or sweep there, or --model."
        )
    cluster = clusters.one_cluster(flags, found.sources[0][1] if found.sources else None)
    found.sources[:] = [(what, clusters.placed(flags, cluster, source)) for what, source in found.sources]
    page = Page(f"tfsched report: {os.path.basename(os.path.abspath(directory))}")
    page.text(f"Made by tfsched {__version__}. Simulated on: {simulate.describe(cluster)}.")
    recommended = write_page(page, found, chosen, cluster, flags)
    out = flags.out or os.path.join(directory, "report.html")
    write_text(out, page.to_html())
    summary: dict[str, Any] = {"page": out, "unused": found.unused, "recommended": None}
    if recommended is not None:
        plan, options = recommended
        path = flags.plan or os.path.join(directory, PLAN)
        write_text(path, json.dumps(plan.to_json(), indent=1) + "\n")
        summary["recommended"] = {"plan": path, **options}
    if flags.json:
        print(json.dumps(summary, indent=1, allow_nan=False))
    elif not flags.quiet:
        print(f"report written to {out}" + (f", plan to {summary['recommended']['plan']}" if recommended else ""))
    return 0


def write_page(
    page: Page, found: Found, chosen: dict[str, Method], cluster: Cluster, flags: CommandFlags
) -> tuple[Plan, dict[str, Any]] | None:
    """Fills the page; returns the plan and options recommended for the first source."""
    if found.benches or found.simulations:
        page.section("What was measured")
        sections.benches(page, found.benches)
        for name, data in found.simulations:
            page.heading(f"simulated before: {data['what']} ({name})")
            page.text(data["description"])
            sections.distribution(page, {n: m["iteration_us"] for n, m in data["methods"].items()}, name)
    recommended: tuple[Plan, dict[str, Any]] | None = None
    dags = [(name, source, inputs.dag_of(source, flags, cluster.bandwidth_bps)) for name, source in found.sources]
    if dags:
        page.section("The models")
        for name, _, dag in dags:
            sections.source(page, name, dag)
        page.section("How far each order is from the optimum")
        for name, _, dag in dags:
            sections.optimum(
                page, name, comparing.compare(dag, comparing.names_of(["all"]), flags.seed, LIMIT_S, flags.quiet)
            )
        page.section("What each method would bring")
        with progress(flags.quiet) as bar:
            task = bar.add_task("simulating", total=len(dags) * len(chosen))
            for name, source, dag in dags:
                results = {}
                for method_name, method in chosen.items():
                    bar.update(task, description=f"simulating {plain(method_name)}")
                    workload = inputs.workload_of(source, flags)
                    results[method_name] = one(workload, cluster, method, flags, timeline=True)
                    bar.advance(task)
                best = compare(page, name, results)
                if recommended is None:
                    recommended = recommend(source, dag, chosen[best], cluster, flags)
    add_sweeps(page, found, dags, chosen, cluster, flags)
    if recommended is not None:
        add_recommendation(page, found, recommended)
    if found.unused:
        page.section("Files left out")
        page.table(["file", "why"], [[name, reason] for name, reason in found.unused.items()])
    return recommended


def one(workload: Any, cluster: Cluster, method: Method, flags: CommandFlags, timeline: bool) -> Result:
    return run_simulation(
        workload,
        cluster,
        method,
        iterations=flags.iterations,
        warmup=flags.warmup,
        seed=flags.seed,
        timeline=timeline,
    )


def compare(page: Page, name: str, results: dict[str, Result]) -> str:
    """Table, timelines, distribution and critical paths of one source; returns the fastest method."""
    names = list(results)
    first = results[names[0]]
    best = min(names, key=lambda n: results[n].median_us)
    page.heading(name)
    sections.methods(
        page, simulate.HEADINGS, [[n, *simulate.row_of(r, first)] for n, r in results.items()], names.index(best)
    )
    sections.gantts(page, {n: simulate.last_step(r) for n, r in results.items()}, f"{name}: one step of each method")
    sections.distribution(page, {n: r.iteration_us for n, r in results.items()}, name)
    for shown in dict.fromkeys((names[0], best)):
        sections.path(page, shown, simulate.joined(results[shown].critical_path))
    return best


def add_sweeps(
    page: Page,
    found: Found,
    dags: list[tuple[str, Any, Dag]],
    chosen: dict[str, Method],
    cluster: Cluster,
    flags: CommandFlags,
) -> None:
    """The sweeps of the directory, or one over bandwidth of the first source."""
    sweeps = list(found.sweeps)
    if not sweeps and dags and flags.sweep:
        name, source, _ = dags[0]
        points = [clusters.replace(cluster, {"bandwidth_bps": cluster.bandwidth_bps * factor}) for factor in FACTORS]
        workload = inputs.workload_of(source, flags)
        with progress(flags.quiet) as bar:
            task = bar.add_task("sweeping", total=len(points) * len(chosen))
            rows = sweep.sweep(workload, points, chosen, flags, inputs.batch_of(flags), lambda: bar.advance(task))
        sweeps.append((name, {"what": f"{name}, simulated for this page", "rows": rows}))
    if sweeps:
        page.section("Other bandwidths and sizes")
    for _, data in sweeps:
        page.heading(data["what"])
        page.picture(pictures.png(sweep.picture(data)), f"sweep: {data['what']}")


def recommend(source: Any, dag: Dag, method: Method, cluster: Cluster, flags: CommandFlags) -> tuple[Plan, dict[str, Any]]:
    """The plan and the session's options that carry a method out."""
    name = method.ordering or "none"
    decided: Mapping[str, float] = {}
    if method.ordering is None:
        plan = Plan("none", {})  # stock order has none
    else:
        decided = decide(source, dag, name, flags.seed)
        if isinstance(source, (Dag, LayerTable)):
            plan = plan_of(dag, name, decided, flags.seed)
        else:
            plan = source.plan(name, seed=flags.seed)  # of all receivers, by the names of the traced session
    barrier = cluster.barrier if method.barrier is None else method.barrier
    options: dict[str, Any] = {"method": method.name, "ordering": name, "barrier": barrier}
    options.update(policy=method.policy, partition_bytes=method.partition_bytes, credit_bytes=method.credit_bytes)
    if isinstance(decided, ordering.Decision):  # what a planner leaves to nobody: without its policy no push is ordered
        options["policy"] = options["policy"] or decided.policy
        if options["credit_bytes"] is None:
            options["credit_bytes"] = decided.credit_bytes
    return plan, {key: value for key, value in options.items() if value is not None}


def add_recommendation(page: Page, found: Found, recommended: tuple[Plan, dict[str, Any]]) -> None:
    """The fastest method as something to run."""
    plan, options = recommended
    page.section("Recommended")
    page.text(f"For {found.sources[0][0]}, {options['method']} is the fastest of the methods above.")
    given = {key: value for key, value in options.items() if key not in ("method", "ordering")}
    arguments = ", ".join(f"{key}={value!r}" for key, value in given.items())
    page.code(f"options = tfsched.Options(plan={PLAN!r}, {arguments})\nconfig = tfsched.session_config(options)")
    text = json.dumps(plan.to_json(), indent=1)
    page.download(PLAN, text + "\n", PLAN)
    page.code(text if len(text) < 20_000 else text[:20_000] + "\n...")
