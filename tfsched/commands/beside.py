"""``tfsched simulate --beside``: trainings that share links."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from tfsched.commands import inputs
from tfsched.commands.files import write_text
from tfsched.commands.flags import CommandFlags, UsageError
from tfsched.commands.showing import plain, progress, say, table
from tfsched.simulator import Beside, Cluster, Control, Job, Jobs, Method, Workload, profiles

FORMAT = "tfsched-jobs/1"


def define(flags: CommandFlags) -> None:
    flags.strings("beside", "", "built-in models that train at the same time on a cluster of the same kind; a list")
    flags.choice(
        "share", "servers", ["servers", "workers", "all"], "with --beside: whose hosts all trainings have in common"
    )
    flags.strings(
        "priorities",
        "",
        'with --beside: a whole number for each training; smaller is sooner on all links; or "intensity"',
    )
    flags.strings("starts_us", "", "with --beside: when each training begins, in µs")
    flags.strings("rates", "", "with --beside: what each training hands over to one receiver at most, as 2gbit; 0: no cap")


def run(
    flags: CommandFlags, workload: Workload, cluster: Cluster, chosen: dict[str, Method], content: dict[str, Any]
) -> int:
    """Simulates the trainings under each method, together. `content` is what the result says of the cluster."""
    if flags.timeline or flags.plot:
        raise UsageError("--beside draws no timeline; leave out --timeline and --plot.")
    controls = controls_of(flags)
    workloads = {"1:" + (flags.model or "file"): workload}
    for i, model in enumerate(flags.beside, 2):
        workloads[f"{i}:{model}"] = Workload.from_layers(profiles.load(model, None, flags.flops), flags.phase)
    results: dict[str, tuple[Jobs, Beside]] = {}
    with progress(flags.quiet) as bar:
        task = bar.add_task("simulating", total=len(chosen))
        for name, method in chosen.items():
            jobs = Jobs(
                [Job(job, one, cluster, method, flags.share) for job, one in workloads.items()],
                iterations=flags.iterations,
                warmup=flags.warmup,
                seed=flags.seed,
            )
            if flags.priorities == ["intensity"]:
                first = jobs.intense_first()
                controls = [dataclasses.replace(c, priority=f.priority) for c, f in zip(controls, first, strict=True)]
            results[name] = (jobs, jobs.beside(controls))
            bar.advance(task)
    rows = {name: to_json(jobs, beside) for name, (jobs, beside) in results.items()}
    text = json.dumps({**content, "format": FORMAT, "share": flags.share, "methods": rows}, indent=1)
    if flags.out:
        write_text(flags.out, text + "\n")
    if flags.json:
        print(text)
    elif not flags.quiet:
        show(flags, content, rows)
    return 0


def controls_of(flags: CommandFlags) -> list[Control]:
    """One for each training. Raises UsageError for a list of another length, or of something else."""
    count = len(flags.beside) + 1
    lists: dict[str, list[Any]] = {}
    for name, field, read in (
        ("priorities", "priority", int),
        ("starts_us", "start_us", float),
        ("rates", "rate_bps", lambda text: round(inputs.parse_bandwidth(text) or 0)),
    ):
        texts = getattr(flags, name)
        if not texts or (texts == ["intensity"] and name == "priorities"):
            texts = ["0"] * count
        if len(texts) != count:
            raise UsageError(f"--{name} has {len(texts)} values for {count} trainings; give one for each.")
        try:
            lists[field] = [0 if text == "0" else read(text) for text in texts]
        except ValueError:
            raise UsageError(f"--{name} is {','.join(texts)!r}; give numbers.") from None
    return [Control(**{field: values[i] for field, values in lists.items()}) for i in range(count)]


def to_json(jobs: Jobs, beside: Beside) -> dict[str, Any]:
    """What one method comes to."""
    return {
        "alone_us": {job.name: alone.iteration_us for job, alone in zip(jobs.jobs, jobs.alone, strict=True)},
        # JSON has no infinity: a training that made no step has no time.
        "iteration_us": {name: us if beside.speed[name] else None for name, us in beside.iteration_us.items()},
        "speed": beside.speed,
        "utilisation": beside.utilisation,
        "bound": jobs.bound(),
    }


def show(flags: CommandFlags, content: dict[str, Any], rows: dict[str, dict[str, Any]]) -> None:
    """A row for each method and training."""
    title = f"{content['what']} and {', '.join(flags.beside)} share {flags.share}: {content['description']}"
    made = table(title, "method", "what", "alone ms", "beside ms", "speed", "mean speed", "at most", "busiest shared link")
    for name, row in rows.items():
        mean = sum(row["speed"].values()) / len(row["speed"])
        busiest = max(row["utilisation"].values())
        for i, (job, alone_us) in enumerate(row["alone_us"].items()):
            us = row["iteration_us"][job]
            of_all = (f"{mean:.0%}", f"{row['bound']:.0%}", f"{busiest:.0%}") if i == 0 else ("", "", "")
            made.add_row(
                plain(name) if i == 0 else "",
                plain(job),
                f"{alone_us / 1e3:,.3f}",
                "-" if us is None else f"{us / 1e3:,.3f}",
                f"{row['speed'][job]:.0%}",
                *of_all,
            )
    say(made)
