"""Runs the bench from a plain configuration: what the command line calls."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tfsched.bench import claims as claims_module
from tfsched.bench import inputs, predicting, report
from tfsched.bench.cluster import Cluster
from tfsched.bench.config import BALANCED, BenchConfig, are_apart, batch_of, block_of, check, threads_of
from tfsched.bench.errors import BenchError
from tfsched.bench.links import REAL, Link, choose_link, parse_bandwidth
from tfsched.bench.machines.base import Machines
from tfsched.bench.machines.find import ended_by_signals, find_machines
from tfsched.bench.machines.serving import Serving
from tfsched.bench.op_times import StepSample
from tfsched.bench.replicas_runner import ReplicasRunner
from tfsched.bench.runner import TRACED_STEPS, Runner
from tfsched.bench.runner import Progress as Report
from tfsched.bench.settings import ALL_REDUCING, STOCK, STRATEGY, TFSCHED, Setting, find_settings, for_emulated_link

__all__ = ["BenchConfig", "run", "trace_model"]


@contextlib.contextmanager
def _progress(model: str, quiet: bool) -> Iterator[Report]:
    """A bar on stderr that shows what is being done."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        disable=quiet,
        transient=True,
    ) as bars:
        bar = bars.add_task(f"{model}: starting the cluster", total=None)

        def show(what: str, done: int, total: int) -> None:
            bars.update(bar, description=f"{model}: {what}", completed=done, total=total)

        yield show


def _busy_note() -> list[str]:
    """A warning where other programs use the cores that are about to be measured."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load < cores:
        return []
    return [f"the machine was busy before the run (load {load:.1f} on {cores} cores)"]


def _protocols(settings: list[Setting], link: Link) -> tuple[str, ...]:
    if link.kind == "emulated":
        return (TFSCHED,)
    # The bounds run on stock servers, whatever the settings need.
    return tuple(dict.fromkeys([STOCK, *(setting.protocol for setting in settings)]))


def _cluster(config: BenchConfig, link: Link, settings: list[Setting], machines: Machines | None = None) -> Cluster:
    return Cluster(
        config.ps,
        config.workers,
        link,
        _protocols(settings, link),
        *threads_of(config),
        config.timeout_s,
        coordinators=config.api == STRATEGY,
        replicas={"api": config.api, "loop": config.loop} if config.api in ALL_REDUCING else None,
        apart=are_apart(config),
        machines=machines,
    )


def _run_model(
    config: BenchConfig, model: str, link: Link, settings: list[Setting], progress: Report, machines: Machines | None
) -> dict[str, Any]:
    cluster = _cluster(config, link, settings, machines)
    notes = list(link.notes)
    intra, inter = threads_of(config)
    with cluster:
        told = (cluster, model, config.phase, settings, config.seed, config.warmup, progress)
        replicas = ReplicasRunner(*told, config.beside, link=link) if config.api in ALL_REDUCING else None
        runner = replicas or Runner(*told, config.beside, config.placement == BALANCED)
        batch = batch_of(config)
        fit = runner.choose_batch(batch)
        block = block_of(config)
        rounds = -(-config.steps // block)
        runner.open_settings(one_at_a_time=rounds == 1)
        measurement = runner.measure(rounds, block)
        if replicas is not None:
            replicas.check_alike()
        if fit is not None:
            batch = fit.batch
            if not fit.within:
                notes.append(
                    "computing was not within 10% of communicating at any batch tried "
                    f"({', '.join(map(str, sorted(fit.measured)))}); {batch} came nearest"
                )
        notes += [f"setting {name}: no transfer was ordered, what it shows is stock" for name in sorted(runner.unscheduled)]
        facts = {
            "model": model,
            "api": config.api,
            "phase": config.phase,
            "ps": config.ps,
            "workers": config.workers,
            "placement": config.placement,
            "bandwidth_bps": link.bandwidth_bps,
            "link": link.kind,
            "batch": batch,
            "ps_bytes": runner.ps_bytes,
            "threads": {
                **{"worker_intra_op": intra, "worker_inter_op": inter},
                **{"cores": cluster.cores, "apart": are_apart(config)},
            },
            "tensorflow": cluster.tensorflow,
            "notes": notes,
        }
        if replicas is not None:
            facts |= {"loop": config.loop, "gradient_bytes": replicas.gradient_bytes, "exchanged": replicas.exchanged}
        result = report.build_result(measurement, facts)
        if config.claims:
            samples = [
                StepSample(**sample)  # type: ignore[arg-type]
                for sample in runner.sample(report.BASELINE, config.claims_steps)
            ]
            result["claims"] = claims_module.check_claims(samples, measurement.steps_s)
        if config.trace:
            runner.trace_open(settings[0].name, TRACED_STEPS, os.path.abspath(config.trace))
        if config.predict:
            trace = _trace_of(runner)
            predicting.add_to(result, trace, runner.plans)
            if config.inputs and trace is not None:
                inputs.save(inputs.path_of(config.inputs, model, config.workers), trace, runner.plans)
    return result


def _trace_of(runner: Runner) -> Any:
    """A trace of steps that keep the barrier; None where no setting has them."""
    from tfsched.tracing import load_trace

    with tempfile.TemporaryDirectory(prefix="tfs-trace-") as directory:
        path = os.path.join(directory, "trace.json")
        return load_trace(path) if runner.trace_kept(path) else None


def _settings_and_link(config: BenchConfig) -> tuple[list[Setting], Link]:
    settings = find_settings(config.settings)
    if config.cluster:
        return settings, Link(REAL, parse_bandwidth(config.bandwidth))
    link = choose_link(config.link, parse_bandwidth(config.bandwidth))
    if link.kind == "emulated":
        settings = [for_emulated_link(setting) for setting in settings]
    return settings, link


def trace_model(config: BenchConfig) -> Any:
    """Traces `config.steps` steps of one model under one setting on a cluster like the bench's.

    Returns:
        The `tfsched.StepTrace`.
    """
    from tfsched.tracing import load_trace

    check(config)
    batch = batch_of(config)
    settings, link = _settings_and_link(config)
    if len(config.models) != 1 or len(settings) != 1 or batch is None:
        raise BenchError(
            f"a trace is of one model, one setting and a given batch, not of {config.models}, "
            f"{config.settings} and {config.batch!r}: name one of each"
        )
    with (
        tempfile.TemporaryDirectory(prefix="tfs-trace-") as directory,
        _progress(config.models[0], config.quiet) as progress,
        _cluster(config, link, settings) as cluster,
    ):
        runner = Runner(
            *(cluster, config.models[0], config.phase, settings),
            *(config.seed, config.warmup, progress),
            balanced=config.placement == BALANCED,
        )
        path = os.path.join(directory, "trace.json")
        runner.trace(batch, config.steps, path)
        return load_trace(path)


def run(config: BenchConfig, workers: Sequence[int] = ()) -> Any:
    """Measures every model, prints and writes the reports, and returns the JSON content.

    Args:
        config: what to measure.
        workers: numbers of workers, one after another, in the place of the config's.

    Returns:
        The result object of a model and a number of workers; of several a list of them. None in a task of
        `--cluster tf_config` that has served another one.

    Raises:
        BenchError: nothing was measured, for what is asked makes no sense or does not work here.
    """
    if not config.cluster:
        configs = [dataclasses.replace(config, workers=count) for count in dict.fromkeys(workers)] or [config]
        return _measure(configs, None)
    if len(workers) > 1:
        counts = ",".join(map(str, workers))
        raise BenchError(f"--workers is {counts} and --cluster {config.cluster} has one set of hosts: give one number")
    given = workers[0] if workers else config.workers
    found, ps, count = find_machines(config.cluster, config.api, config.ps, given, not config.quiet, config.timeout_s)
    config = dataclasses.replace(config, ps=ps, workers=count)
    with ended_by_signals():
        if isinstance(found, Serving):
            _check([config])  # all tasks have the same command line, so all of them refuse it
            found.run()
            return None
        try:
            content = _measure([config], found)
        except BaseException as error:
            found.end(error)
            raise
        found.end(None)
    return content


def _check(configs: list[BenchConfig]) -> None:
    for one in configs:
        check(one)
        batch_of(one)


def _measure(configs: list[BenchConfig], machines: Machines | None) -> Any:
    """As `run`; the configs differ in their numbers of workers only."""
    _check(configs)
    config = configs[0]
    settings, link = _settings_and_link(config)
    console = Console()
    if not console.is_terminal:
        console = Console(width=110)
    link = dataclasses.replace(link, notes=(*link.notes, *([] if machines else _busy_note())))
    results = []
    for model in config.models:
        of_model = []
        for one in configs:
            with _progress(f"{model}, {one.workers} worker(s)" if len(configs) > 1 else model, config.quiet) as progress:
                of_model.append(_run_model(one, model, link, settings, progress, machines))
        results += of_model
        if not config.quiet:
            report.print_results(of_model, console)
            if config.claims:
                for result in of_model:
                    claims_module.print_claims(result, console)
    content = results[0] if len(results) == 1 else results
    if config.json:
        with open(config.json, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.write("\n")
    if config.plot:
        from tfsched.bench import plots

        plots.save_plot(results, config.plot)
        if config.claims:
            stem, extension = os.path.splitext(config.plot)
            plots.save_claims_plot(results, f"{stem}-claims{extension or '.png'}")
    return content
