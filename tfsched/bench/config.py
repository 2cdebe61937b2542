"""What a run of the bench can be told, and what is refused before anything starts."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from typing import Any

from tfsched.bench import pinning, report
from tfsched.bench.batch import LARGEST
from tfsched.bench.errors import BenchError
from tfsched.bench.models import PHASES, find_model
from tfsched.bench.runner import check_rounds
from tfsched.bench.settings import ALL_REDUCING, APIS, CUSTOM, FIT, LOOPS, SESSION, STOCK, find_settings
from tfsched.bench.threads import AUTO, resolve_threads

# Long enough that the end of a block, where nothing overlaps, weighs little; short enough for a median over several blocks.
TRAIN_BLOCK = 5

# How variables come to parameter servers.
IN_TURN, BALANCED = PLACEMENTS = ("round-robin", "balanced")

ALL_REDUCE_PHASES = ("train", "allreduce")

# What is not given is so, and where workers all-reduce as below it.
_USUAL: dict[str, Any] = {"ps": 1, "workers": 1, "phase": "forward", "settings": ["vanilla", "tio", "tao"]}
_REDUCING: dict[str, Any] = {"ps": 0, "workers": 2, "phase": "train", "settings": ["vanilla", "tio", "bytescheduler", "p3"]}


@dataclasses.dataclass
class BenchConfig:
    """Everything a run can be told; the defaults are those of the command line.

    Attributes:
        models: names from `MODELS`, measured one after another.
        api: "session" runs steps with a tf.compat.v1 session, "strategy" schedules a tf.function with a ClusterCoordinator,
            "mirrored" trains on all workers under MultiWorkerMirroredStrategy, "parallel" by `tfsched.parallel`.
        loop: how workers that all-reduce train: "custom" calls a tf.function, "fit" Model.fit, of tf_keras with "mirrored"
            and of Keras 3 with "parallel".
        ps, workers: number of tasks of each job; None is 1, and where workers all-reduce 0 and 2.
        cluster: "" runs all tasks on this machine; else where they run: a YAML file of hosts, "slurm" or "tf_config". Then
            `ps` and `workers` are the hosts' (None; Slurm's nodes have no roles, so there both may be given), and `link` and
            `cores` stay "auto".
        bandwidth: of each host's link and direction: "1gbit", "400mbit", "1e9", "unlimited". None is "1gbit", and with
            `cluster` unknown.
        link: "netns", "emulated", "none" or "auto".
        phase: "forward" (inference) or "train" (with SGD); where workers all-reduce "train" or "allreduce" (of made-up
            gradients). None is "forward", and where workers all-reduce "train".
        settings: names from `SETTINGS`; None for some that fit the api.
        batch: samples per worker and step, or "auto": computing takes nearly as long as communicating.
        steps, warmup: measured (rounded up to whole blocks) and discarded steps per setting.
        block: consecutive steps between two looks at the clock, or "auto": `TRAIN_BLOCK` in phase train, else 1. The same
            for all settings, because some return from a step before its updates are applied. Of more than 6 the step time is
            that of the steady state.
        beside: also measure how long computing takes while the links are busy with what has nothing to do with it.
        predict: also say what the simulator predicts for each setting, which needs `beside`, and where there are parameter
            servers traced steps.
        inputs: directory for what predictions are made from (`inputs.py`), a file for each model and number of workers; None
            for none.
        json, plot: files to write, None for none.
        trace: file for a step trace of the first setting, of steps behind the measured ones; None for none.
        quiet: no progress bars and no table, only files.
        claims: also check the paper's claims, on `claims_steps` traced steps of vanilla.
        placement: "round-robin", variables to parameter servers in turn, as TensorFlow does; "balanced", by
            `tfsched.placement`, for all settings and bounds.
        intra_op_threads, inter_op_threads: of each worker; "auto" leaves half of the cores to the network, 0 is TensorFlow's
            default. Parameter servers always have the default.
        cores: "apart" gives workers' computations half of the cores, alone, "shared" leaves it to the kernel; "auto" is
            apart where there are two or more cores and intra_op_threads is "auto".
        timeout_s: limit for any single request to the cluster.
    """

    models: list[str]
    api: str = SESSION
    loop: str = CUSTOM
    ps: int = None  # type: ignore[assignment]  # until __post_init__
    workers: int = None  # type: ignore[assignment]
    cluster: str = ""
    bandwidth: str = None  # type: ignore[assignment]
    link: str = "auto"
    phase: str = None  # type: ignore[assignment]
    settings: list[str] = None  # type: ignore[assignment]
    batch: str | int = "auto"
    steps: int = 20
    warmup: int = 3
    block: str | int = "auto"
    beside: bool = False
    predict: bool = False
    inputs: str | None = None
    json: str | None = None
    plot: str | None = None
    trace: str | None = None
    quiet: bool = False
    claims: bool = False
    claims_steps: int = 200
    seed: int = 0
    placement: str = IN_TURN
    intra_op_threads: str | int = AUTO
    inter_op_threads: str | int = AUTO
    cores: str = pinning.AUTO
    timeout_s: float = 300.0

    def __post_init__(self) -> None:
        for name, value in (_REDUCING if self.api in ALL_REDUCING else _USUAL).items():
            if getattr(self, name) is None and not (self.cluster and name in ("ps", "workers")):
                setattr(self, name, value)
        if self.bandwidth is None:
            self.bandwidth = "unlimited" if self.cluster else "1gbit"
        self.beside = self.beside or self.predict


def batch_of(config: BenchConfig) -> int | None:
    """The batch size, None for auto and where nothing is computed."""
    if config.batch == "auto" or config.phase == "allreduce":
        return None
    try:
        batch = int(config.batch)
    except ValueError:
        batch = 0
    if not 1 <= batch <= LARGEST:
        raise BenchError(f"batch {config.batch!r} is not usable: give auto or 1 to {LARGEST}")
    return batch


def block_of(config: BenchConfig) -> int:
    """How many consecutive steps are timed together."""
    if config.block == "auto":
        # The claims are about single steps.
        single = config.phase != "train" or config.claims
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


def threads_of(config: BenchConfig) -> tuple[int, int]:
    """A worker's intra-op and inter-op threads. Where it has a host of its own "auto" is TensorFlow's default."""
    if config.cluster:
        own = [0 if value == AUTO else value for value in (config.intra_op_threads, config.inter_op_threads)]
        return resolve_threads("intra_op_threads", own[0], 1), resolve_threads("inter_op_threads", own[1], 1)
    return (
        resolve_threads("intra_op_threads", config.intra_op_threads, config.workers),
        resolve_threads("inter_op_threads", config.inter_op_threads, config.workers),
    )


def are_apart(config: BenchConfig) -> bool:
    """Whether workers compute on cores of their own."""
    return not config.cluster and pinning.are_apart(config.cores, config.intra_op_threads)


def check(config: BenchConfig) -> None:
    """Refuses at once what would only fail after minutes of measuring."""
    if not config.models:
        raise BenchError("no model given: give --model, for example --model mlp24")
    for model in config.models:
        find_model(model)
    if config.api not in APIS:
        raise BenchError(f"api {config.api!r} is unknown: choose {', '.join(APIS[:-1])} or {APIS[-1]}")
    if config.loop not in LOOPS:
        raise BenchError(f"loop {config.loop!r} is unknown: choose {' or '.join(LOOPS)}")
    if config.api in ALL_REDUCING:
        _check_all_reducing(config)
    else:
        if config.loop != CUSTOM:
            raise BenchError(f"--loop {config.loop} is for workers that all-reduce: add --api {' or '.join(ALL_REDUCING)}")
        for flag, count in (("ps", config.ps), ("workers", config.workers)):
            if not 1 <= count <= 64:
                raise BenchError(f"--{flag} is {count}: give 1 to 64")
        if config.phase in ALL_REDUCE_PHASES and config.phase not in PHASES:
            wanted = " or ".join(ALL_REDUCING)
            raise BenchError(f"phase {config.phase!r} needs --api {wanted}: add it, or choose forward or train")
        if config.phase not in PHASES:
            raise BenchError(f"phase {config.phase!r} is unknown: choose forward or train")
    if config.placement not in PLACEMENTS:
        raise BenchError(f"placement {config.placement!r} is unknown: choose {' or '.join(PLACEMENTS)}")
    if config.placement != IN_TURN and config.api in ALL_REDUCING:
        raise BenchError(f"--placement is about parameter servers: leave it out with --api {config.api}")
    threads_of(config)
    are_apart(config)
    if config.cluster:
        _check_cluster(config)
    block_of(config)
    check_rounds(config.steps, config.warmup)
    if config.claims and config.api != SESSION:
        raise BenchError("--claims traces the steps of sessions: leave it out, or use --api session")
    if config.claims and report.BASELINE not in config.settings:
        raise BenchError("--claims traces vanilla steps: add vanilla to --settings")
    if config.claims and config.claims_steps < 3:
        raise BenchError(f"--claims_steps is {config.claims_steps}: trace at least 3 steps")
    if config.plot and importlib.util.find_spec("matplotlib") is None:
        raise BenchError("--plot needs matplotlib: pip install matplotlib, or leave --plot out")
    if config.trace and len(config.models) > 1:
        raise BenchError(f"--trace {config.trace} is one file and --model names {len(config.models)} models: give one model")
    if config.predict and config.api not in (SESSION, *ALL_REDUCING):
        raise BenchError(f"--predict needs a traced step of a session, or all-reduces: leave it out with --api {config.api}")
    if config.predict and config.cluster:
        raise BenchError(f"--predict traces on this machine: leave it out with --cluster {config.cluster}")
    if config.inputs and not config.predict:
        raise BenchError(f"--inputs {config.inputs} is for what predictions are made from: give --predict, too")
    if config.trace and config.api != SESSION:
        raise BenchError("--trace traces the steps of sessions: leave it out, or use --api session")
    if config.inputs and os.path.exists(config.inputs) and not os.path.isdir(config.inputs):
        raise BenchError(f"--inputs {config.inputs} is a file: give a directory")
    for path in filter(None, (config.json, config.plot, config.trace, config.inputs)):
        directory = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(directory) or not os.access(directory, os.W_OK):
            raise BenchError(f"{path!r} cannot be written: make the directory {directory!r} first")


def all_stock(settings: list[str]) -> bool:
    """Whether none of the settings has tfsched's processes."""
    return all(setting.protocol == STOCK for setting in find_settings(settings))


def _check_cluster(config: BenchConfig) -> None:
    where = f"--cluster {config.cluster}"
    if config.link != "auto":
        raise BenchError(f"--link {config.link} is about links that this machine makes: leave it out with {where}")
    if config.cores != pinning.AUTO:
        raise BenchError(f"--cores {config.cores} parts the cores of this machine: leave it out with {where}")
    if config.trace:
        raise BenchError(f"--trace {config.trace} would be written on the host of worker 0: leave it out with {where}")


def _check_all_reducing(config: BenchConfig) -> None:
    api = config.api
    if config.ps:
        raise BenchError(f"--ps is {config.ps} and --api {api} has no parameter servers: leave --ps out")
    if not 2 <= config.workers <= 64:
        raise BenchError(f"--workers is {config.workers}, too few or too many to all-reduce: give 2 to 64 with --api {api}")
    if config.phase not in ALL_REDUCE_PHASES:
        raise BenchError(
            f"phase {config.phase!r} all-reduces nothing: give {' or '.join(ALL_REDUCE_PHASES)} with --api {api}"
        )
    if config.beside and (config.phase != "train" or config.loop == FIT or all_stock(config.settings)):
        flag = "--predict" if config.predict else "--beside"
        raise BenchError(
            f"{flag} computes beside tfsched's all-reduces: give --phase train, --loop custom and a setting of it"
        )
    if config.loop == FIT:
        if config.phase != "train":
            raise BenchError(f"--loop fit trains and --phase is {config.phase}: give --phase train, or --loop custom")
        for name in config.models:
            if find_model(name).layers is None:
                raise BenchError(f"model {name!r} is not made of Keras layers: leave it out with --loop fit")
        for setting in find_settings(config.settings):
            if setting.needs_plan:
                raise BenchError(f"setting {setting.name!r} needs a traced step: leave it out with --loop fit")
