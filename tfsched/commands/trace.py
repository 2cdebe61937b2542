"""``tfsched trace``: records step traces of a user's script or of a bench model."""

from __future__ import annotations

from typing import Any

from tfsched.commands.files import open_file
from tfsched.commands.flags import CommandFlags, UsageError
from tfsched.commands.quiet import import_tensorflow


def define(flags: CommandFlags) -> None:
    flags.string("script", "", "Python file to run; what follows -- are its arguments")
    flags.string("model", "", "instead of a script: a model of the bench, on a cluster of this machine")
    flags.string("out", "trace.json.gz", "write the trace to this file; gzipped if it ends in .gz")
    flags.integer("steps", 5, "steps to trace", lower=1)
    flags.integer("skip", 3, "steps to let pass first", lower=0)
    flags.string("setting", "tio", "of a bench model: the preset to run under")
    flags.integer("ps", 1, "of a bench model: parameter servers", lower=1)
    flags.integer("workers", 1, "of a bench model: workers", lower=1)
    flags.string("bandwidth", "1gbit", "of a bench model: each link's")
    flags.choice("link", "auto", ["netns", "emulated", "none", "auto"], "of a bench model: as in tfsched bench")
    flags.choice("phase", "forward", ["forward", "train"], "of a bench model: as in tfsched bench")
    flags.integer("batch", 16, "of a bench model: samples a worker and step", lower=1)
    flags.boolean("quiet", False, "print nothing but errors")


def run(flags: CommandFlags, arguments: list[str]) -> int:
    if bool(flags.script) == bool(flags.model):
        raise UsageError(f"tfsched trace got --script={flags.script!r} and --model={flags.model!r}; give one of the two.")
    if flags.model and arguments:
        raise UsageError(f"tfsched trace --model takes only flags and got {' '.join(arguments)!r}")
    import_tensorflow()
    trace = _script(flags, arguments) if flags.script else _model(flags)
    trace.save(flags.out, open_file)
    if not flags.quiet:
        print(f"{len(trace.steps)} steps of {len(trace.nodes)} ops and {len(trace.links)} transfers written to {flags.out}")
    return 0


def _script(flags: CommandFlags, arguments: list[str]) -> Any:
    from rich.console import Console
    from rich.progress import Progress

    from tfsched.tracing.script import trace_script

    with Progress(console=Console(stderr=True), disable=flags.quiet, transient=True) as progress:
        bar = progress.add_task(f"tracing {flags.script}", total=flags.steps)
        return trace_script(
            flags.script, arguments, flags.steps, flags.skip, lambda done: progress.update(bar, completed=done)
        )


def _model(flags: CommandFlags) -> Any:
    from tfsched.bench.command import BenchConfig, trace_model

    return trace_model(
        BenchConfig(
            models=[flags.model],
            ps=flags.ps,
            workers=flags.workers,
            bandwidth=flags.bandwidth,
            link=flags.link,
            phase=flags.phase,
            settings=[flags.setting],
            batch=flags.batch,
            steps=flags.steps,
            warmup=flags.skip,
            quiet=flags.quiet,
        )
    )
