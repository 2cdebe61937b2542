"""The command line: finds the command, runs it, turns a user's mistake into one line and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from tfsched.commands.flags import CommandFlags, UsageError
from tfsched.commands.table import COMMANDS
from tfsched.version import __version__

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
