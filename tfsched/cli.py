"""The command line: finds the command, runs it, turns a user's mistake into one line and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from tfsched.commands.flags import CommandFlags, UsageError
from tfsched.version import __version__


class Command(NamedTuple):
    """What the help says of a command.

    Attributes:
      summary: what it does, to follow its name.
      example: a command line.
      usage: its arguments beside flags; "" for none.
    """

    summary: str
    example: str
    usage: str = ""


# Each is a module of tfsched.commands with define(flags) and run(flags, arguments) -> exit code.
COMMANDS = {
    "doctor": Command("checks that tfsched works on this machine, line by line, with the remedy", "tfsched doctor"),
    "run": Command(
        "runs an unmodified program with tfsched, alone or as the processes of a local cluster",
        "tfsched run --policy bytescheduler --num_processes 2 train.py --epochs 3",
        "(FILE | -m MODULE) [program's arguments]",
    ),
    "bench": Command(
        "trains a model on a cluster of this machine under several settings and compares them",
        "tfsched bench --model mlp24 --settings vanilla,tio --bandwidth 1gbit --steps 10",
    ),
    "trace": Command(
        "records step traces of a script or of a bench model",
        "tfsched trace --script train.py --steps 5 --out trace.json.gz -- --epochs 1",
        "[-- script's arguments]",
    ),
    "order": Command(
        "turns a trace, a DAG or a model into a plan",
        "tfsched order trace.json.gz --algorithm tao --plan plan.json",
        "[FILE]",
    ),
    "explain": Command(
        "says why an order is what it is, and what a step waits for",
        "tfsched explain trace.json.gz --algorithm tao",
        "[FILE]",
    ),
    "simulate": Command(
        "predicts a model's steps on a described cluster, under several methods",
        "tfsched simulate trace.json.gz --bandwidth 10gbit --workers 4",
        "[FILE]",
    ),
    "sweep": Command(
        "simulates over bandwidth, workers and methods: table, CSV, plot",
        "tfsched sweep trace.json.gz --bandwidth 1gbit,10gbit --workers 1,4",
        "[FILE]",
    ),
    "tune": Command(
        "searches partition, credit and policy for a model on a described cluster",
        "tfsched tune trace.json.gz --bandwidth 10gbit --workers 4",
        "[FILE]",
    ),
    "report": Command(
        "makes one page of a directory's benches, traces, DAGs and sweeps", "tfsched report results", "DIRECTORY"
    ),
    "timeline": Command("draws a trace for Perfetto", "tfsched timeline trace.json.gz --out timeline.json", "TRACE"),
    "top": Command("shows what running tasks do, again and again", "tfsched top 127.0.0.1:7000", "HOST:PORT..."),
    "completion": Command(
        "prints what makes a shell complete commands and flags", "source <(tfsched completion bash)", "bash|zsh"
    ),
}

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def usage() -> str:
    rows = [f"tfsched {__version__}: schedules the communication of distributed TensorFlow", ""]
    rows += ["usage: tfsched COMMAND [flags] [arguments]", ""]
    rows += [f"  tfsched {name:<10} {command.summary}" for name, command in COMMANDS.items()]
    rows += ["", "'tfsched COMMAND --help' lists a command's flags; each can also be set by an environment variable."]
    return "\n".join(rows)


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns the exit code: 0, 1 (it failed), 2 (a mistake in what was asked), 130."""
    if not arguments or arguments[0] in ("help", "-h", "--help", "-help"):
        print(usage())
        return OK if arguments else USAGE
    if arguments[0] in ("version", "--version"):
        print(__version__)
        return OK
    name, *rest = arguments
    try:
        if name not in COMMANDS:
            raise UsageError(f"{name!r} is no command of tfsched; the commands are {', '.join(COMMANDS)}.")
        command = importlib.import_module(f"tfsched.commands.{name}")
        flags = CommandFlags(name)
        command.define(flags)
        own, _ = flags.split(rest)
        if "--helpfull" in own:
            print(flags.full_help())
            return OK
        if any(argument in ("--help", "-h", "-help") for argument in own):
            about = COMMANDS[name]
            print(flags.help(about.usage, f"{about.summary[0].upper()}{about.summary[1:]}.", about.example))
            return OK
        return int(command.run(flags, flags.parse(rest)))
    except KeyboardInterrupt:
        print("tfsched: interrupted", file=sys.stderr)
        return INTERRUPTED
    except ValueError as error:
        # TfschedError, DagError, PlanError, ...: one sentence each. Any other ValueError is a fault of ours.
        if type(error) is ValueError or isinstance(error, UnicodeError):
            raise
        print(f"tfsched: {error}", file=sys.stderr)
        return int(getattr(error, "exit_code", USAGE))
    except BrokenPipeError:
        # The reader of a pipe (head) has gone; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def main() -> None:
    """The console script."""
    if sys.argv[1:2] != ["run"]:  # a program's messages are its own
        # TensorFlow's start-up messages drown ours; whoever wants them sets the variable.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        os.environ.setdefault("TFSCHED_LOG_LEVEL", "warning")
    code = run(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # TensorFlow's servers have no way to stop; their threads must not see the interpreter being torn down.
    os._exit(code) if "tensorflow" in sys.modules else sys.exit(code)


if __name__ == "__main__":
    main()
