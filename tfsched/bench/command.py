"""Runs the bench from a plain configuration: what the command line calls."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tfsched.bench import claims as claims_module
from tfsched.bench import report
from tfsched.bench.batch import LARGEST
from tfsched.bench.cluster import Cluster
from tfsched.bench.errors import BenchError
from tfsched.bench.links import Link, choose_link, parse_bandwidth
from tfsched.bench.models import PHASES, find_model
from tfsched.bench.op_times import StepSample
from tfsched.bench.runner import Progress as Report
from tfsched.bench.runner import Runner, check_rounds
from tfsched.bench.settings import STOCK, TFSCHED, Setting, find_settings, for_emulated_link
from tfsched.bench.threads import AUTO, available_cores, resolve_threads

# Long enough that the end of a block, where nothing overlaps, weighs little; short enough for a median over several blocks.
TRAIN_BLOCK = 5


@dataclasses.dataclass
class BenchConfig:
    """Everything a run can be told; the defaults are those of the command line.

    Attributes:
        models: names from `MODELS`, measured one after another.
        ps, workers: number of tasks of each job.
        bandwidth: of each host's link and direction: "1gbit", "400mbit", "1e9", "unlimited".
        link: "netns", "emulated", "none" or "auto".
        phase: "forward" (inference) or "train" (with SGD).
        settings: names from `SETTINGS`.
        batch: samples per worker and step, or "auto": computing takes nearly as long as communicating.
        steps, warmup: measured (rounded up to whole blocks) and discarded steps per setting.
        block: consecutive steps between two looks at the clock, or "auto": `TRAIN_BLOCK` in phase train, else 1. The same
            for all settings, because some return from a step before its updates are applied.
        json, plot: files to write, None for none.
        quiet: no progress bars and no table, only files.
        claims: also check the paper's claims, on `claims_steps` traced steps of vanilla.
        intra_op_threads, inter_op_threads: of each worker; "auto" leaves half of the cores to the network, 0 is TensorFlow's
            default. Parameter servers always have the default.
        timeout_s: limit for any single request to the cluster.
    """

    models: list[str]
    ps: int = 1
    workers: int = 1
    bandwidth: str = "1gbit"
    link: str = "auto"
    phase: str = "forward"
    settings: list[str] = dataclasses.field(default_factory=lambda: ["vanilla", "tio", "tao"])
    batch: str | int = "auto"
    steps: int = 20
    warmup: int = 3
    block: str | int = "auto"
    json: str | None = None
    plot: str | None = None
    quiet: bool = False
    claims: bool = False
    claims_steps: int = 200
    seed: int = 0
    intra_op_threads: str | int = AUTO
    inter_op_threads: str | int = AUTO
    timeout_s: float = 300.0


def _batch_of(config: BenchConfig) -> int | None:
    """The batch size, None for auto."""
    if config.batch == "auto":
        return None
    try:
        batch = int(config.batch)
    except ValueError:
        batch = 0
    if not 1 <= batch <= LARGEST:
        raise BenchError(f"batch {config.batch!r} is not usable: give auto or 1 to {LARGEST}")
    return batch


def _block_of(config: BenchConfig) -> int:
    """How many consecutive steps are timed together."""
    if config.block == "auto":
        # The claims are about single steps.
        single = config.phase == "forward" or config.claims
        return 1 if single else min(TRAIN_BLOCK, config.steps)
    try:
        block = int(config.block)
    except ValueError:
        block = 0
    if block < 1:
        raise BenchError(f"block {config.block!r} is not usable: give auto or a number of steps")
    if config.claims and block > 1:
        raise BenchError(f"--claims looks at single steps, and --block is {block}: leave one of the two out")
    return block


def _threads(config: BenchConfig) -> tuple[int, int]:
    """A worker's intra-op and inter-op threads."""
    return (
        resolve_threads("intra_op_threads", config.intra_op_threads, config.workers),
        resolve_threads("inter_op_threads", config.inter_op_threads, config.workers),
    )


def _check(config: BenchConfig) -> None:
    """Refuses at once what would only fail after minutes of measuring."""
    if not config.models:
        raise BenchError("no model given: give --model, for example --model mlp24")
    for model in config.models:
        find_model(model)
    for flag, count in (("ps", config.ps), ("workers", config.workers)):
        if not 1 <= count <= 64:
            raise BenchError(f"--{flag} is {count}: give 1 to 64")
    if config.phase not in PHASES:
        raise BenchError(f"phase {config.phase!r} is unknown: choose forward or train")
    _threads(config)
    _block_of(config)
    check_rounds(config.steps, config.warmup)
    if config.claims and report.BASELINE not in config.settings:
        raise BenchError("--claims traces vanilla steps: add vanilla to --settings")
    if config.claims and config.claims_steps < 3:
        raise BenchError(f"--claims_steps is {config.claims_steps}: trace at least 3 steps")
    if config.plot and importlib.util.find_spec("matplotlib") is None:
        raise BenchError("--plot needs matplotlib: pip install matplotlib, or leave --plot out")
    for path in filter(None, (config.json, config.plot)):
        directory = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(directory) or not os.access(directory, os.W_OK):
            raise BenchError(f"{path!r} cannot be written: make the directory {directory!r} first")


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


def _cluster(config: BenchConfig, link: Link, settings: list[Setting]) -> Cluster:
    return Cluster(
        config.ps,
        config.workers,
        link,
        _protocols(settings, link),
        *_threads(config),
        config.timeout_s,
    )


def _run_model(config: BenchConfig, model: str, link: Link, settings: list[Setting], progress: Report) -> dict[str, Any]:
    cluster = _cluster(config, link, settings)
    notes = list(link.notes)
    intra, inter = _threads(config)
    with cluster:
        runner = Runner(cluster, model, config.phase, settings, config.seed, config.warmup, progress)
        batch = _batch_of(config)
        fit = runner.choose_batch(batch)
        runner.open_settings()
        block = _block_of(config)
        measurement = runner.measure(-(-config.steps // block), block)
        if fit is not None:
            batch = fit.batch
            if not fit.within:
                notes.append(
                    "computing was not within 10% of communicating at any batch tried "
                    f"({', '.join(map(str, sorted(fit.measured)))}); {batch} came nearest"
                )
        facts = {
            "model": model,
            "phase": config.phase,
            "ps": config.ps,
            "workers": config.workers,
            "bandwidth_bps": link.bandwidth_bps,
            "link": link.kind,
            "batch": batch,
            "ps_bytes": runner.ps_bytes,
            "threads": {"worker_intra_op": intra, "worker_inter_op": inter, "cores": available_cores()},
            "tensorflow": cluster.tensorflow,
            "notes": notes,
        }
        result = report.build_result(measurement, facts)
        if config.claims:
            samples = [
                StepSample(**sample)  # type: ignore[arg-type]
                for sample in runner.sample(report.BASELINE, config.claims_steps)
            ]
            result["claims"] = claims_module.check_claims(samples, measurement.steps_s)
    return result


def _settings_and_link(config: BenchConfig) -> tuple[list[Setting], Link]:
    settings = find_settings(config.settings)
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

    _check(config)
    batch = _batch_of(config)
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
        )
        path = os.path.join(directory, "trace.json")
        runner.trace(batch, config.steps, path)
        return load_trace(path)


def run(config: BenchConfig) -> Any:
    """Measures every model, prints and writes the reports, and returns the JSON content.

    One model gives one result object, several give a list of them.
    """
    _check(config)
    _batch_of(config)
    settings, link = _settings_and_link(config)
    console = Console()
    if not console.is_terminal:
        console = Console(width=110)
    link = dataclasses.replace(link, notes=(*link.notes, *_busy_note()))
    results = []
    for model in config.models:
        with _progress(model, config.quiet) as progress:
            results.append(_run_model(config, model, link, settings, progress))
        if not config.quiet:
            report.print_result(results[-1], console)
            if config.claims:
                claims_module.print_claims(results[-1], console)
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
