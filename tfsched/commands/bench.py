"""``tfsched bench``: a real cluster on this machine, several settings in one run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tfsched.commands.flags import CommandFlags, UsageError

MODELS = (
    "seq32, par32, mlp24, alexnet, vgg16, inception_v3, resnet50, resnet152, transformer, mlpLxW (L layers of W x W), your "
    "own as FILE.py:FUNCTION (examples/bench_model.py)"
)

# Fields of BenchConfig that are not simply the flag of the same name.
_FILES = ("inputs", "json", "plot", "trace")
_OTHER = ("models", "workers", *_FILES)


def define(flags: CommandFlags) -> None:
    flags.strings("model", "mlp24", f"models to train, one after another: {MODELS}")
    flags.choice(
        "api",
        "session",
        ["session", "strategy", "mirrored", "parallel"],
        "session: tf.compat.v1 sessions; strategy: tf.function under ParameterServerStrategy with a ClusterCoordinator; "
        "mirrored: every worker under MultiWorkerMirroredStrategy; parallel: every worker by tfsched.parallel",
    )
    flags.choice(
        "loop",
        "custom",
        ["custom", "fit"],
        "of --api mirrored and parallel; custom: a tf.function a step; fit: Model.fit, of tf_keras with mirrored, of Keras "
        "3 with parallel",
    )
    flags.integer("ps", None, "parameter servers, one host each; if not given 1, where workers all-reduce none", lower=0)
    flags.strings(
        "workers",
        None,
        "workers, one host each; several numbers, as in 2,3,4, are measured one after another; if not given 1, with --api "
        "mirrored and parallel 2",
    )
    flags.string(
        "cluster",
        "",
        "real machines: a YAML file of hosts that ssh reaches; slurm: the nodes of this job; tf_config: tasks, in each of "
        "which you start this command; empty: all tasks on this machine",
    )
    flags.string(
        "bandwidth",
        None,
        'of each host\'s link, each way: "1gbit", "400mbit", "1e9", "unlimited"; if not given 1gbit, with --cluster unknown',
    )
    flags.choice(
        "link",
        "auto",
        ["netns", "emulated", "none", "auto"],
        "netns: a network namespace a host (root); emulated: paced in the sender; none: loopback; auto: what works",
    )
    flags.choice(
        "phase",
        None,
        ["forward", "train", "allreduce"],
        "forward pass only, or a training step; with --api mirrored and parallel train or allreduce (of made-up gradients); "
        "if not given forward, with these two train",
    )
    flags.strings(
        "settings",
        None,
        "presets to compare, interleaved; with options as in tio:credit_bytes=300000:seed=2; if not given vanilla,tio,tao, "
        "with --api mirrored and parallel vanilla,tio,bytescheduler,p3",
    )
    flags.string("batch", "auto", "samples a worker and step; auto: computing takes 0.95 of communicating")
    flags.integer("steps", 20, "measured steps of each setting", lower=1)
    flags.string(
        "block",
        "auto",
        "steps timed together, with the last one's updates; auto: 5 in phase train, else 1; > 6: steady state, ends apart",
    )
    flags.integer("warmup", 3, "steps of each setting that are not counted", lower=0)
    flags.boolean("beside", False, "also: how long computing takes beside communication that it does not wait for")
    flags.boolean("predict", False, "also: what the simulator predicts for each setting, from the parts as measured alone")
    flags.string("inputs", "", "with --predict: keep the traces and plans that it uses in this directory")
    flags.string("json", "", "write the result to this file")
    flags.string("plot", "", "draw the result into this PNG")
    flags.string("trace", "", "then trace 5 steps of the first setting and write them to this file, for order and simulate")
    flags.choice(
        "placement",
        "round-robin",
        ["round-robin", "balanced"],
        "round-robin: variables to parameter servers in turn; balanced: the same bytes on each (tfsched.placement)",
    )
    flags.integer("seed", 0, "of initial values and inputs", lower=0)
    flags.boolean("claims", False, "check the TicTac paper's claims: R^2 of E against step time, CDF of step times")
    flags.integer("claims_steps", 200, "traced steps of vanilla for --claims", lower=2)
    flags.string(
        "intra_op_threads",
        "auto",
        "threads of one op of a worker; auto: its share of half the cores less one, 0: TensorFlow's",
    )
    flags.string("inter_op_threads", "auto", "ops at once in a worker; as --intra_op_threads")
    flags.choice(
        "cores",
        "auto",
        ["auto", "apart", "shared"],
        "apart: half of the cores are for workers' computations alone; auto: so, if intra_op_threads is auto too",
    )
    flags.number("timeout_s", 300.0, "limit of each request to the cluster, in seconds", lower=1.0)
    flags.boolean("quiet", False, "no progress and no table, only files")


def run(flags: CommandFlags, arguments: list[str]) -> int:
    from tfsched.bench.command import BenchConfig
    from tfsched.bench.command import run as run_bench

    if arguments:
        raise UsageError(f"tfsched bench takes only flags and got {' '.join(arguments)!r}")
    same = {field.name: getattr(flags, field.name) for field in dataclasses.fields(BenchConfig) if field.name not in _OTHER}
    files: dict[str, Any] = {name: getattr(flags, name) or None for name in _FILES}
    run_bench(BenchConfig(models=flags.model, **files, **same), numbers_of_workers(flags.workers))
    return 0


def numbers_of_workers(texts: Sequence[str] | None) -> list[int]:
    """The numbers in --workers; none if it is not given.

    Raises:
      UsageError: one is no number above 0.
    """
    for text in texts or []:
        if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
            raise UsageError(f"--workers has {text!r}; give numbers above zero, as in 2,3,4.")
    return [int(text) for text in texts or []]
