"""Options, and the logger's level, in the environment: what they mean, who wins, what is said about mistakes."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from tfsched import Options, TfschedError
from tfsched._options import DEFAULTS, FLAGS, VARIABLES
from tfsched.commands.table import COMMANDS
from tfsched.grappler.config import session_config

OTHERS = {
    "ordering": ("tao", "tao"),
    "policy": ("p3", "p3"),
    "credit_bytes": ("5000", 5000),
    "partition_bytes": ("65536", 65536),
    "plan": ("plan.json", "plan.json"),
    "plugin": ("mine.py", "mine.py"),
    "seed": ("-7", -7),
    "barrier": ("off", False),
    "strict": ("True", True),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_each_option_has_a_variable_and_code_wins(name, monkeypatch):
    text, value = OTHERS[name]
    assert getattr(Options(), name) == DEFAULTS[name] != value
    monkeypatch.setenv(f"TFSCHED_{name.upper()}", text)
    assert getattr(Options(), name) == value
    assert getattr(Options(**{name: DEFAULTS[name]}), name) == DEFAULTS[name]
    if name == "ordering":
        assert Options("layer").ordering == "layer"
    monkeypatch.setenv(f"TFSCHED_{name.upper()}", "")
    assert Options() == Options.from_parameters({})


def test_what_travels_to_another_process_is_not_completed_there(monkeypatch):
    parameters = Options(barrier=False).to_parameters()
    monkeypatch.setenv("TFSCHED_POLICY", "p3")
    monkeypatch.setenv("TFSCHED_SEED", "no number")
    assert Options.from_parameters(parameters) == Options.from_parameters({"barrier": False})
    assert Options.from_parameters(parameters).policy == "auto"


def test_options_that_are_changed_keep_what_they_had(monkeypatch):
    before = Options(seed=3)
    monkeypatch.setenv("TFSCHED_POLICY", "p3")
    assert dataclasses.replace(before, seed=4).policy == "auto"


def test_sessions_without_options_take_the_environments(monkeypatch):
    monkeypatch.setenv("TFSCHED_POLICY", "bytescheduler")
    (optimizer,) = session_config().graph_options.rewrite_options.custom_optimizers
    assert optimizer.parameter_map["policy"].s == b"bytescheduler"


@pytest.mark.parametrize(
    ("variable", "text", "sentence"),
    [
        (
            "TFSCHED_POLICY",
            "fast",
            "TFSCHED_POLICY is 'fast'; choose one of auto, fifo, tictac, bytescheduler, p3, prophet.",
        ),
        ("TFSCHED_BARRIER", "maybe", "TFSCHED_BARRIER is 'maybe'; give true or false."),
        ("TFSCHED_CREDIT_BYTES", "1e6", "TFSCHED_CREDIT_BYTES is '1e6'; give a whole number or \"auto\"."),
        ("TFSCHED_PARTITION_BYTES", "1e6", "TFSCHED_PARTITION_BYTES is '1e6'; give a whole number or \"auto\"."),
        ("TFSCHED_CREDIT_BYTES", "-2", 'TFSCHED_CREDIT_BYTES is -2; give "auto", 0 (no limit) or more.'),
        ("TFSCHED_PARTITION_BYTES", "12", 'TFSCHED_PARTITION_BYTES is 12; give "auto", 0 (never cut), or 4096 or more.'),
    ],
)
def test_a_wrong_value_is_one_sentence_with_the_variable(variable, text, sentence, monkeypatch):
    monkeypatch.setenv(variable, text)
    with pytest.raises(TfschedError) as caught:
        Options(seed=1)
    assert str(caught.value) == sentence


def test_a_wrong_value_in_code_is_not_the_environments(monkeypatch):
    monkeypatch.setenv("TFSCHED_SEED", "4")
    with pytest.raises(TfschedError, match="Option policy is 'fast'"):
        Options(policy="fast")


def test_what_is_on_says_where_it_is_from(monkeypatch):
    monkeypatch.setenv("TFSCHED_POLICY", "p3")
    monkeypatch.setenv("TFSCHED_BARRIER", "false")
    monkeypatch.setenv(FLAGS, "TFSCHED_BARRIER")
    said = Options(seed=5).describe()
    assert said == "ordering=tio (default), policy=p3 (TFSCHED_POLICY), seed=5 (code), barrier=False (--barrier)"


def test_no_variable_of_an_option_is_that_of_a_commands_flag():
    assert not [name for name in VARIABLES for command in COMMANDS if name.startswith(f"TFSCHED_{command.upper()}_")]


SAY = """
import logging, sys
from tfsched._log import log
log.debug("d"), log.info("i"), log.warning("w"), log.error("e")
logging.basicConfig(format="%(name)s/%(message)s", level="DEBUG")
log.error("formatted by the program")
"""


@pytest.mark.parametrize(
    ("level", "lines"),
    [
        ("debug", ["tfsched DEBUG: d", "tfsched INFO: i", "tfsched WARNING: w", "tfsched ERROR: e"]),
        ("", ["tfsched INFO: i", "tfsched WARNING: w", "tfsched ERROR: e"]),
        ("Warning", ["tfsched WARNING: w", "tfsched ERROR: e"]),
        ("error", ["tfsched ERROR: e"]),
    ],
)
def test_the_level_of_the_one_logger(level, lines, monkeypatch):
    monkeypatch.setenv("TFSCHED_LOG_LEVEL", level)
    done = subprocess.run([sys.executable, "-c", SAY], capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines() == [*lines, "tfsched/formatted by the program"]


def test_a_level_that_is_none_is_said_once(monkeypatch):
    monkeypatch.setenv("TFSCHED_LOG_LEVEL", "loud")
    done = subprocess.run([sys.executable, "-c", "import tfsched._log"], capture_output=True, text=True, timeout=60)
    said = "tfsched WARNING: TFSCHED_LOG_LEVEL is 'loud', and info is used; choose one of debug, info, warning, error.\n"
    assert done.stderr == said
