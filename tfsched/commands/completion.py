"""``tfsched completion``: what makes bash or zsh complete commands, flags and the values of flags."""

from __future__ import annotations

import importlib

from tfsched.commands.flags import CommandFlags, UsageError
from tfsched.commands.table import COMMANDS

SHELLS = ("bash", "zsh")

# One function for both: zsh has bash's way to complete, too.
_SCRIPT = """# Completes tfsched: source <(tfsched completion {shell})
{begin}_tfsched() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{commands}" -- "$current"))
    return
  fi
  case "${{COMP_WORDS[1]}} $previous" in
{values}
  esac
  if [ -z "$words" ] && [[ "$current" == -* ]]; then
    case "${{COMP_WORDS[1]}}" in
{flags}
    esac
  fi
  if [ -n "$words" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _tfsched tfsched
"""


def define(flags: CommandFlags) -> None:
    del flags  # it has none


def run(flags: CommandFlags, arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in SHELLS:
        raise UsageError(f"tfsched completion got {' '.join(arguments)!r}; give one shell: {' or '.join(SHELLS)}.")
    print(script(arguments[0]), end="")
    return 0


def script(shell: str) -> str:
    """The completion for one of SHELLS."""
    flags, values = [], []
    for name in sorted(COMMANDS):
        defined = CommandFlags(name)
        importlib.import_module(f"tfsched.commands.{name}").define(defined)
        written = ["--help"]
        for flag in defined.names():
            written += [f"--{flag}", f"--no{flag}"] if defined.is_boolean(flag) else [f"--{flag}"]
            if defined.choices(flag):
                values.append(f'    "{name} --{flag}") words="{" ".join(defined.choices(flag))}" ;;')
        flags.append(f'      {name}) words="{" ".join(written)}" ;;')
    values.append(f'    "completion completion") words="{" ".join(SHELLS)}" ;;')
    begin = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return _SCRIPT.format(
        shell=shell, begin=begin, commands=" ".join(sorted(COMMANDS)), values="\n".join(values), flags="\n".join(flags)
    )
