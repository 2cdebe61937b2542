"""``tfsched run``: an unmodified program with tfsched, in this process's place or as the tasks of a local cluster."""

from __future__ import annotations

import os
import sys
from typing import Any

from tfsched._log import LEVELS
from tfsched._log import VARIABLE as LOG_LEVEL
from tfsched._options import AUTO, AUTO_BYTES, DEFAULTS, VARIABLES, Options, variable_of
from tfsched._rules import POLICIES
from tfsched.commands.flags import CommandFlags, UsageError
from tfsched.ordering import Plan

_GRACE_S = 10.0
_MOST = 64


def define(flags: CommandFlags) -> None:
    flags.ends_with_program = True
    _define_options(flags)
    flags.choice("log_level", None, list(LEVELS), "of tfsched's own lines; if not given info", LOG_LEVEL)
    flags.integer("num_processes", None, "start so many local workers, each with TF_CONFIG", lower=1)
    flags.integer("workers", None, "beside --ps: start so many local workers; if not given 1", lower=1)
    flags.integer("ps", None, "start so many local parameter servers, and workers", lower=1)
    flags.boolean("chief", False, "beside --ps: start a chief, too: the coordinator of ParameterServerStrategy")
    flags.number("grace_s", _GRACE_S, "seconds that local processes have to end before they are killed", lower=0.0)


def _define_options(flags: CommandFlags) -> None:
    """One flag for each of `tfsched.Options`, whose variable the program itself reads."""

    def told(name: str, help: str) -> tuple[str, str]:
        default = DEFAULTS[name]
        shown = str(default).lower() if isinstance(default, bool) else AUTO if default == AUTO_BYTES else default
        return f"{help}; if not given {'none' if default == '' else shown}", variable_of(name)

    def string(name: str, help: str) -> None:
        flags.string(name, None, *told(name, help))

    def number(name: str, help: str) -> None:
        text, variable = told(name, help)
        flags.integer(name, None, text, variable=variable)

    def boolean(name: str, help: str) -> None:
        flags.boolean(name, None, *told(name, help))

    string("ordering", 'which transfer goes first: tio, tao, layer, ...; "none" leaves it to TensorFlow')
    flags.choice("policy", None, [AUTO, *POLICIES], *told("policy", "when transfers are handed to gRPC (docs/policies.md)"))
    string("credit_bytes", "bytes that gRPC may hold before the next transfer waits; 0: no limit")
    string("partition_bytes", "larger transfers leave in pieces of so many bytes; 0: whole")
    boolean("barrier", "whether a step ends when its updates are applied, as TensorFlow's does (docs/across-the-barrier.md)")
    string("plan", "a Plan file, which wins over --ordering")
    string("plugin", "a Python file that registers orderings")
    number("seed", "for orderings that draw random numbers")
    boolean("strict", "fail a step where the pass would step aside")


def run(flags: CommandFlags, arguments: list[str]) -> int:
    from tfsched.launch.program import command_of, environment_of

    command = command_of(arguments)
    options = {variable: _text(getattr(flags, name)) for variable, name in VARIABLES.items() if flags.given(name)}
    environment = environment_of(os.environ, options)
    if flags.log_level is not None:
        environment[LOG_LEVEL] = flags.log_level
    _check(environment)
    counts = _counts(flags)
    if counts is None:
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(command[0], command, environment)
    return _run_cluster(command, environment, *counts, grace_s=flags.grace_s)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check(environment: dict[str, str]) -> None:
    """Says now what every process of the program would say.

    Raises:
      TfschedError: an option has a wrong value.
      PlanError: the plan cannot be read. One that is not a local file is left to the program.
    """
    before = dict(os.environ)
    try:
        os.environ.update({name: environment[name] for name in VARIABLES if name in environment})
        options = Options()
    finally:
        os.environ.clear()
        os.environ.update(before)
    if options.plan and "://" not in options.plan and not options.plan.lstrip().startswith("{"):
        Plan.load(options.plan)


def _counts(flags: CommandFlags) -> tuple[int, int, bool] | None:
    """Workers, parameter servers and whether there is a chief; None for one process as it is.

    Raises:
      UsageError: the flags contradict one another.
    """
    if flags.num_processes is not None:
        for name, given in (("ps", flags.ps is not None), ("workers", flags.workers is not None), ("chief", flags.chief)):
            if given:
                raise UsageError(
                    f"--num_processes is {flags.num_processes} and --{name} is given; give --num_processes for workers "
                    "alone, or --ps, --workers and --chief for parameter servers."
                )
        counts = (flags.num_processes, 0, False)
    elif flags.ps is not None:
        counts = (flags.workers or 1, flags.ps, flags.chief)
    elif flags.workers is not None or flags.chief:
        name = "--workers" if flags.workers is not None else "--chief"
        raise UsageError(f"{name} is given without --ps; give --ps, or --num_processes for workers alone.")
    else:
        return None
    if counts[0] + counts[1] > _MOST:
        asked = f"{counts[0]} workers and {counts[1]} parameter servers are asked for"
        raise UsageError(f"{asked}; start at most {_MOST} processes on one machine.")
    return counts


def _run_cluster(command: list[str], environment: dict[str, str], workers: int, ps: int, chief: bool, grace_s: float) -> int:
    from tfsched.bench.ports import free_ports
    from tfsched.launch.cluster import tasks_of, tf_configs
    from tfsched.launch.processes import Job

    tasks = tasks_of(workers, ps, chief)
    configs = tf_configs(tasks, [f"127.0.0.1:{port}" for port in free_ports(len(tasks))])
    # gRPC would ask a proxy for this machine's own ports; what is printed would come when a buffer is full.
    beyond = ",".join(filter(None, [environment.get("no_proxy"), "127.0.0.1", "localhost"]))
    shared = {**environment, "no_proxy": beyond, "PYTHONUNBUFFERED": environment.get("PYTHONUNBUFFERED", "1")}
    return Job(command, {task: {**shared, "TF_CONFIG": configs[task]} for task in tasks}, grace_s).run()
