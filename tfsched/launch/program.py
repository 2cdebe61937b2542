"""The command and the environment of a program that runs with tfsched."""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Mapping, Sequence

from tfsched._log import VARIABLE as LOG_LEVEL
from tfsched._options import FLAGS
from tfsched.errors import TfschedError

_SITE = str(pathlib.Path(__file__).resolve().parent / "site")
MODULE = "-m"


def command_of(program: Sequence[str]) -> list[str]:
    """The command that runs a program as ``python program...`` does.

    Args:
      program: a Python file and its arguments, or "-m", a module and its arguments.

    Raises:
      TfschedError: there is no such file, or nothing was given.
    """
    if not program:
        raise TfschedError(
            "tfsched run got no program; name a Python file, as in 'tfsched run train.py', or a module, as in "
            "'tfsched run -m trainer'."
        )
    if program[0] == MODULE:
        if len(program) == 1:
            raise TfschedError("tfsched run got -m and no module; name one, as in 'tfsched run -m trainer'.")
    elif not os.path.exists(program[0]):
        is_python = os.path.basename(program[0]).startswith("python")
        hint = "leave it out and give its first argument" if is_python else "give the path of a Python file"
        raise TfschedError(f"The program {program[0]!r} does not exist; {hint}, or a module as -m NAME.")
    return [sys.executable, *program]


def environment_of(environment: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """The environment in which Python switches tfsched on before it runs a program.

    Args:
      environment: the user's.
      options: variable of an option -> what the command line says; wins over the environment.
    """
    paths = [_SITE, *filter(None, [environment.get("PYTHONPATH")])]
    made = {**environment, **options, FLAGS: ",".join(options), "PYTHONPATH": os.pathsep.join(paths)}
    made.setdefault(LOG_LEVEL, "info")
    return made
