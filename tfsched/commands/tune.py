"""``tfsched tune``: searches partition, credit and policy for a model on a cluster that is simulated."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfsched._options import Options
from tfsched._rules import DEFAULT_CREDIT_BYTES, POLICIES
from tfsched.commands import clusters, inputs
from tfsched.commands.files import write_bytes, write_text
from tfsched.commands.flags import CommandFlags, UsageError
from tfsched.commands.showing import plain, progress, say, table
from tfsched.commands.simulate import describe, what_is_simulated
from tfsched.simulator import Cluster, Method, Workload, simulate
from tfsched.tuning import SEARCHES, Decision, Key, Memory, Rules, Setting, Space, Tuner, csv_text, make_search

FORMAT = "tfsched-tune/1"
METHOD = "bytescheduler"
# The default bounds of the space, as flags have them.
_PARTITIONS, _CREDITS = (",".join(map(str, bounds)) for bounds in (Space().partition_bytes, Space().credit_bytes))


def define(flags: CommandFlags) -> None:
    inputs.define(flags)
    clusters.define_cluster(flags, several=False)
    flags.strings("method", METHOD, "the method to tune; its ordering and barrier stay, its settings are the first ones")
    flags.choice("search", "bayesian", list(SEARCHES), "how settings are proposed")
    flags.integer("samples", Rules.budget, "samples to take, at most", lower=1)
    flags.strings("policies", "", f"policies to try, of {', '.join(POLICIES)}; empty: all that differ on the cluster")
    flags.strings("partition_range", _PARTITIONS, "least and most partition_bytes to try")
    flags.strings("credit_range", _CREDITS, "least and most credit_bytes to try")
    flags.number("noise", 0.0, "standard deviation of the noise put on each sample, as a part of it", lower=0.0)
    flags.string("memory", "", "JSON file with the best settings by model and cluster; read, and written at the end")
    flags.string("csv", "", "write the samples to this CSV file")
    flags.string("plot", "", "draw the samples and the best so far into this PNG")
    flags.boolean("json", False, "print the result as JSON")
    flags.integer("rows", 8, "settings to show, the best first", lower=1)
    flags.boolean("quiet", False, "print nothing but errors and --json")


def run(flags: CommandFlags, arguments: list[str]) -> int:
    method = method_of(flags)
    if not flags.noise <= 1:  # nor is it a number then, if it is none
        raise UsageError(f"--noise is {flags.noise}; give a part of a step's time, from 0 to 1.")
    source = inputs.read_source(flags, arguments)
    cluster = clusters.one_cluster(flags, source)
    source = clusters.placed(flags, cluster, source)
    space = space_of(flags, cluster)
    what = what_is_simulated(flags, arguments)
    memory = Memory(flags.memory) if flags.memory else None
    key = key_of(what, cluster)
    known = memory.recall(key) if memory else None
    search = make_search(flags.search, space, flags.seed)
    tuner = Tuner(search, first_setting(method), Rules(budget=flags.samples), space.nearest(known) if known else None)
    measured = Measured(inputs.workload_of(source, flags), cluster, method, flags)
    if memory and memory.problem:
        print(f"tfsched: {memory.problem}", file=sys.stderr)
    with progress(flags.quiet) as bar:
        task = bar.add_task("tuning", total=flags.samples)
        while (trial := tuner.ask()) is not None:
            tuner.tell(measured.seconds(trial.setting, trial.samples))
            bar.advance(task, trial.samples)
    decision = tuner.decision
    assert decision is not None
    if flags.csv:
        write_text(flags.csv, csv_text(tuner.records))
    if flags.plot:
        from tfsched.tuning import picture

        write_bytes(flags.plot, picture.png(tuner.records, f"{what}, {describe(cluster)}: {flags.search} search"))
    options = options_text(method, decision.setting, cluster, flags.plugin)
    if flags.json:
        content = {"format": FORMAT, "what": what, "description": describe(cluster), "search": flags.search}
        print(json.dumps({**content, **json_of(decision), "options": options}, indent=1, allow_nan=False))
    elif not flags.quiet:
        show(tuner, decision, f"{what}: {describe(cluster)}", flags.rows)
        say(decision.reason)
        say(options)
    if memory:  # last: what was found is told, whether it can be written or not
        memory.remember(key, decision.setting, decision.seconds)
    return 0


class Measured:
    """Simulates settings, each once, and puts noise on what each sample is told."""

    def __init__(self, workload: Workload, cluster: Cluster, method: Method, flags: CommandFlags):
        self._workload, self._cluster, self._method, self._flags = workload, cluster, method, flags
        self._random = np.random.default_rng((flags.seed, 1))  # not the search's
        self._known: dict[Setting, float] = {}

    def seconds(self, setting: Setting, samples: int) -> list[float]:
        """So many samples of the median step in seconds, under noise of the form exp(noise * normal)."""
        if setting not in self._known:
            flags = self._flags
            method = dataclasses.replace(self._method, **setting._asdict())
            counts = {"iterations": flags.iterations, "warmup": flags.warmup, "seed": flags.seed}
            median_us = simulate(self._workload, self._cluster, method, **counts).median_us
            if not median_us > 0:
                raise UsageError(f"a step takes {median_us} µs under {setting}; there is nothing to tune.")
            self._known[setting] = median_us / 1e6
        noise = np.exp(self._flags.noise * self._random.standard_normal(samples))
        return [float(self._known[setting] * factor) for factor in noise]


def method_of(flags: CommandFlags) -> Method:
    """The method of --method. Raises UsageError unless it is one, and has an ordering."""
    chosen = list(clusters.chosen_methods(flags).values())
    if len(chosen) != 1:
        raise UsageError(f"--method names {len(chosen)} methods; tfsched tune tunes one, as in --method {METHOD}.")
    if chosen[0].ordering is None:
        raise UsageError(f"method {chosen[0].name!r} is stock TensorFlow, which has nothing to tune; give another one.")
    return chosen[0]


def first_setting(method: Method) -> Setting:
    """What the method says itself, and where it does not what `tfsched.Options` has."""
    return Setting(
        method.partition_bytes or 0,
        DEFAULT_CREDIT_BYTES if method.credit_bytes is None else method.credit_bytes,
        method.policy or Options().settled().policy,
    )


def space_of(flags: CommandFlags, cluster: Cluster) -> Space:
    """The space of the flags. With all-reduces "tictac" is "bytescheduler", so one of the two is enough."""
    policies = flags.policies or [name for name in POLICIES if name != "tictac" or not cluster.all_reduces]
    return Space(
        bounds_of("partition_range", flags.partition_range), bounds_of("credit_range", flags.credit_range), tuple(policies)
    )


def bounds_of(name: str, texts: Sequence[str]) -> tuple[int, int]:
    """Two numbers of bytes. Raises UsageError; whether they can be bounds is the space's business."""
    if len(texts) != 2 or not all(text.isascii() and text.isdigit() and len(text) < 16 for text in texts):
        raise UsageError(f"--{name} is {','.join(texts)!r}; give the least and the most bytes, as in {_PARTITIONS}.")
    return int(texts[0]), int(texts[1])


def key_of(what: str, cluster: Cluster) -> Key:
    """Under what the result is remembered."""
    servers = 0 if cluster.all_reduces else cluster.servers
    return Key.of(what, cluster.workers, servers, cluster.bandwidth_bps, cluster.architecture)


def options_text(method: Method, setting: Setting, cluster: Cluster, plugin: str) -> str:
    """The options of the setting as one line of Python, with what is not the default."""
    barrier = cluster.barrier if method.barrier is None else method.barrier
    chosen = {"ordering": method.ordering or "", "barrier": barrier, "plugin": plugin, **setting._asdict()}
    options = Options.from_parameters(chosen)
    return f"tfsched.Options({', '.join(f'{name}={value!r}' for name, value in options.to_parameters().items())})"


def json_of(decision: Decision) -> dict[str, Any]:
    """The decision as a JSON object."""
    fields = dataclasses.asdict(decision)
    return {**fields, "setting": decision.setting._asdict(), "first": decision.first._asdict()}


def show(tuner: Tuner, decision: Decision, title: str, rows: int) -> None:
    """Prints the best settings, and the first one wherever it is."""
    samples = tuner.samples
    ranked = sorted(samples.settings, key=samples.log_mean)
    shown = ranked[:rows]
    shown += [setting for setting in dict.fromkeys((decision.setting, decision.first)) if setting not in shown]
    made = table(title, "setting", "samples", "mean ms", "x first", "remark")
    for setting in shown:
        remarks = [word for word, one in (("chosen", decision.setting), ("first", decision.first)) if one == setting]
        made.add_row(
            plain(str(setting)),
            str(samples.count(setting)),
            f"{samples.seconds(setting) * 1e3:,.3f}",
            f"{decision.first_seconds / samples.seconds(setting):.3f}",
            ", ".join(remarks),
        )
    say(made)
