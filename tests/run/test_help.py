"""What the command line says of itself: help, examples that are understood, completion."""

from __future__ import annotations

import importlib
import pathlib
import shlex
import subprocess

import pytest

from tfsched import cli
from tfsched.commands import completion
from tfsched.commands.flags import CommandFlags
from tfsched.commands.table import COMMANDS


def flags_of(name):
    flags = CommandFlags(name)
    importlib.import_module(f"tfsched.commands.{name}").define(flags)
    return flags


def test_each_command_is_a_file_and_has_one_line(capsys):
    assert cli.run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, command in COMMANDS.items():
        assert [line for line in lines if line.split() == ["tfsched", name, *command.summary.split()]], name
        assert callable(importlib.import_module(f"tfsched.commands.{name}").run)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_begins_with_usage_a_sentence_and_an_example_that_is_understood(name, capsys):
    assert cli.run([name, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"usage: tfsched {name} [flags]")
    assert lines[2].endswith(".") and lines[4] == "example:"
    assert lines[5].strip() == COMMANDS[name].example
    assert lines[7] == "flags, and the environment variable of each:"
    if name == "completion":  # a shell's
        return
    first, second, *arguments = shlex.split(COMMANDS[name].example)
    assert (first, second) == ("tfsched", name)
    flags = flags_of(name)
    left = flags.parse(arguments)
    assert bool(left) == bool(COMMANDS[name].usage)


def test_full_help_is_absls(capsys):
    assert cli.run(["bench", "--helpfull"]) == 0
    printed = capsys.readouterr().out
    assert "--bandwidth" in printed and "--flagfile" in printed


def test_flags_may_be_written_with_dashes():
    flags = flags_of("bench")
    assert flags.parse(["--timeout-s", "7", "--inter-op-threads=3", "a-b"]) == ["a-b"]
    assert (flags.timeout_s, flags.inter_op_threads) == (7.0, "3")


def complete(shell, *words):
    """What the shell offers for the last word."""
    told = " ".join(map(shlex.quote, words))
    ask = f"COMP_WORDS=({told}); COMP_CWORD={len(words) - 1}; _tfsched; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    script = completion.script(shell) + ask
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split()


def test_bash_completes_commands_flags_values_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    assert complete("bash", "tfsched", "t") == ["timeline", "top", "trace", "tune"]
    assert complete("bash", "tfsched", "run", "--pol") == ["--policy"]
    assert complete("bash", "tfsched", "run", "--nob") == ["--nobarrier"]
    assert complete("bash", "tfsched", "bench", "--api", "s") == ["session", "strategy"]
    assert complete("bash", "tfsched", "run", "tra") == ["train.py"]
    assert complete("bash", "tfsched", "completion", "") == ["bash", "zsh"]


def test_zsh_uses_bashs_way():
    printed = completion.script("zsh")
    assert printed.splitlines()[1] == "autoload -U +X bashcompinit && bashcompinit"
    assert "COMP_WORDS" in printed


def test_the_guide_names_every_flag_and_variable_of_run():
    guide = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "run.md").read_text()
    flags = flags_of("run")
    rows = [line for line in guide.splitlines() if line.startswith("| `--")]
    assert len(rows) == len(flags.names())
    for name in flags.names():
        shown = f"--[no]{name}" if flags.is_boolean(name) else f"--{name}"
        assert any(row.startswith(f"| `{shown}` | `{flags.variable(name)}` |") for row in rows), name
