"""Flags of one command: absl's, each with a default that an environment variable can replace."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from absl import flags as absl_flags

from tfsched.errors import TfschedError


class UsageError(TfschedError):
    """The command line cannot be understood."""


class CommandFlags:
    """The flags of ``tfsched <command>``.

    Flag ``--batch_size`` of command ``bench`` takes its default from TFSCHED_BENCH_BATCH_SIZE where that is set.
    """

    def __init__(self, command: str):
        self.command = command
        self.values = absl_flags.FlagValues()
        self._env: dict[str, str] = {}

    def string(self, name: str, default: str | None, help: str) -> None:
        absl_flags.DEFINE_string(name, default, self._text(name, help), flag_values=self.values)

    def integer(self, name: str, default: int | None, help: str, lower: int | None = None) -> None:
        absl_flags.DEFINE_integer(name, default, self._text(name, help), lower_bound=lower, flag_values=self.values)

    def number(self, name: str, default: float, help: str, lower: float | None = None) -> None:
        absl_flags.DEFINE_float(name, default, self._text(name, help), lower_bound=lower, flag_values=self.values)

    def boolean(self, name: str, default: bool, help: str) -> None:
        absl_flags.DEFINE_boolean(name, default, self._text(name, help), flag_values=self.values)

    def strings(self, name: str, default: str | None, help: str) -> None:
        absl_flags.DEFINE_list(name, default, self._text(name, help), flag_values=self.values)

    def choice(self, name: str, default: str | None, choices: Sequence[str], help: str) -> None:
        absl_flags.DEFINE_enum(name, default, choices, self._text(name, help), flag_values=self.values)

    def _text(self, name: str, help: str) -> str:
        variable = f"TFSCHED_{self.command}_{name}".upper()
        self._env[name] = variable
        return f"{help} [{variable}]"

    def parse(self, arguments: Sequence[str]) -> list[str]:
        """Sets the flags; returns the other arguments.

        Raises:
          UsageError: an unknown flag, or a value of the wrong kind.
        """
        for name, variable in self._env.items():
            text = os.environ.get(variable)
            if text is not None:
                try:
                    self.values[name].parse(text)
                    self.values[name].using_default_value = True
                except (absl_flags.IllegalFlagValueError, ValueError) as error:
                    raise UsageError(f"Environment variable {variable}={text!r} is of no use: {_last(error)}") from None
        try:
            return list(self.values([f"tfsched {self.command}", *arguments], known_only=False))[1:]
        except absl_flags.Error as error:
            raise UsageError(f"{_last(error)} See 'tfsched {self.command} --help'.") from None

    def help(self, summary: str) -> str:
        """The command's help text."""
        rows = [f"tfsched {self.command}: {summary}", ""]
        for name in sorted(self._env):
            flag = self.values[name]
            default = "" if flag.default in (None, "") else f" (default: {str(flag.default_as_str).strip(chr(39))})"
            shown = f"--[no]{name}" if flag.boolean else f"--{name}"
            rows.append(f"  {shown}{default}")
            rows.append(f"      {flag.help}")
        return "\n".join(rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.values, name)


def _last(error: Exception) -> str:
    text = str(error).strip().splitlines()[0]
    return text if text.endswith(".") else text + "."
