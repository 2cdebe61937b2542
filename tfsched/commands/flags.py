"""Flags of one command: absl's, each with a default that an environment variable can replace."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from absl import flags as absl_flags

from tfsched.errors import TfschedError

_WIDTH = 100
_INDENT = " " * 6


class UsageError(TfschedError):
    """The command line cannot be understood."""


class CommandFlags:
    """The flags of ``tfsched <command>``. Their names may be written with "-" in the place of "_".

    Flag ``--batch_size`` of command ``bench`` takes its default from TFSCHED_BENCH_BATCH_SIZE where that is set.

    Attributes:
      command: the command's name.
      values: absl's flags.
      ends_with_program: what follows the first argument that is no flag belongs to a program, flags of its own included.
    """

    def __init__(self, command: str):
        self.command = command
        self.values = absl_flags.FlagValues()
        self.ends_with_program = False
        self._env: dict[str, str] = {}
        self._help: dict[str, str] = {}
        self._read_elsewhere: set[str] = set()

    def string(self, name: str, default: str | None, help: str, variable: str = "") -> None:
        absl_flags.DEFINE_string(name, default, self._text(name, help, variable), flag_values=self.values)

    def integer(self, name: str, default: int | None, help: str, lower: int | None = None, variable: str = "") -> None:
        text = self._text(name, help, variable)
        absl_flags.DEFINE_integer(name, default, text, lower_bound=lower, flag_values=self.values)

    def number(self, name: str, default: float, help: str, lower: float | None = None) -> None:
        absl_flags.DEFINE_float(name, default, self._text(name, help), lower_bound=lower, flag_values=self.values)

    def boolean(self, name: str, default: bool | None, help: str, variable: str = "") -> None:
        absl_flags.DEFINE_boolean(name, default, self._text(name, help, variable), flag_values=self.values)

    def strings(self, name: str, default: str | None, help: str) -> None:
        absl_flags.DEFINE_list(name, default, self._text(name, help), flag_values=self.values)

    def choice(self, name: str, default: str | None, choices: Iterable[str], help: str, variable: str = "") -> None:
        text = self._text(name, help, variable)
        absl_flags.DEFINE_enum(name, default, list(choices), text, flag_values=self.values)

    def _text(self, name: str, help: str, variable: str = "") -> str:
        """`variable` is the environment variable of a flag that does not follow the rule, and which somebody else reads."""
        if variable:
            self._read_elsewhere.add(name)
        self._env[name] = variable or f"TFSCHED_{self.command}_{name}".upper()
        self._help[name] = f"{help} [{self._env[name]}]"
        return self._help[name]

    def names(self) -> list[str]:
        """All flags, in alphabetical order."""
        return sorted(self._env)

    def variable(self, name: str) -> str:
        """The environment variable of a flag."""
        return self._env[name]

    def choices(self, name: str) -> list[str]:
        """The values that a flag may have; none where there are too many to list."""
        return list(getattr(self.values[name].parser, "enum_values", []))

    def is_boolean(self, name: str) -> bool:
        """Whether the flag is written --name or --noname."""
        return bool(self.values[name].boolean)

    def given(self, name: str) -> bool:
        """Whether the command line has the flag."""
        return bool(self.values[name].present)

    def split(self, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
        """What is the command's own, and what is a program's behind it: the first argument that is no flag, and the rest."""
        if "--" in arguments and not self.ends_with_program:
            at = arguments.index("--")
            return list(arguments[:at]), list(arguments[at:])
        if not self.ends_with_program:
            return list(arguments), []
        at = 0
        while at < len(arguments) and arguments[at].startswith("-") and arguments[at] not in ("--", "-", "-m"):
            name = arguments[at].lstrip("-").replace("-", "_")
            takes_next = "=" not in name and name in self._env and not self.is_boolean(name)
            at += 2 if takes_next else 1
        rest = list(arguments[at:])
        return list(arguments[:at]), rest[1:] if rest[:1] == ["--"] else rest

    def parse(self, arguments: Sequence[str]) -> list[str]:
        """Sets the flags; returns the other arguments.

        Raises:
          UsageError: an unknown flag, or a value of the wrong kind.
        """
        for name, variable in self._env.items():
            text = os.environ.get(variable)
            if text is not None and name not in self._read_elsewhere:
                try:
                    self.values[name].parse(text)
                    self.values[name].using_default_value = True
                except (absl_flags.IllegalFlagValueError, ValueError) as error:
                    raise UsageError(f"Environment variable {variable}={text!r} is of no use: {_last(error)}") from None
        own, program = self.split(arguments)
        own = [self._written_with_underscores(argument) for argument in own]
        try:
            left = list(self.values([f"tfsched {self.command}", *own, *([] if self.ends_with_program else program)]))[1:]
        except absl_flags.Error as error:
            raise UsageError(f"{_last(error)} See 'tfsched {self.command} --help'.") from None
        return [*left, *program] if self.ends_with_program else left

    def _written_with_underscores(self, argument: str) -> str:
        if not argument.startswith("--"):
            return argument
        name, equals, value = argument.partition("=")
        return "--" + name[2:].replace("-", "_") + equals + value

    def help(self, usage: str, summary: str, example: str) -> str:
        """The command's help text: how it is called, what it does, an example, its flags.

        Args:
          usage: the arguments beside the flags, as in "FILE"; "" for none.
          summary: one sentence.
          example: a command line.
        """
        rows = [f"usage: {' '.join(filter(None, ['tfsched', self.command, '[flags]', usage]))}", "", summary, ""]
        rows += ["example:", f"  {example}", "", "flags, and the environment variable of each:"]
        for name in self.names():
            flag = self.values[name]
            default = "" if flag.default in (None, "") else f" (default: {str(flag.default_as_str).strip(chr(39))})"
            choices = self.choices(name)
            shown = f"--[no]{name}" if flag.boolean else f"--{name}"
            rows.append(f"  {shown}{'=' + '|'.join(choices) if choices else ''}{default}")
            rows += textwrap.wrap(
                self._help[name], _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT, break_long_words=False
            )
        return "\n".join(rows)

    def full_help(self) -> str:
        """All flags as absl lists them, those of the libraries that are loaded included."""
        sys.argv[0] = f"tfsched {self.command}"
        others = absl_flags.FLAGS.get_help(include_special_flags=True)
        return f"{self.values.get_help(include_special_flags=False)}\n\nflags of libraries:\n{others}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.values, name)


def _last(error: Exception) -> str:
    text = str(error).strip().splitlines()[0]
    return text if text.endswith(".") else text + "."
