"""``tfsched tune`` as a user runs it."""

from __future__ import annotations

import csv
import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.cli.conftest import call
from tfsched import Options
from tfsched._rules import POLICIES
from tfsched.tuning import SEARCHES, Setting

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = [
    "--model", "resnet18", "--workers", 2, "--servers", 2, "--bandwidth", "1gbit", "--startup_us", 300,
    "--set", "release_us=100", "--barrier", "off", "--iterations", 3, "--warmup", 1,
]  # fmt: skip
FIRST = {"partition_bytes": 4_000_000, "credit_bytes": 2_000_000, "policy": "bytescheduler"}


def options_in(text):
    """The options that a line of Python makes."""
    return eval(text.removeprefix("tfsched."), {"Options": Options})


def test_as_a_program_it_prints_a_table_a_reason_and_options(tmp_path):
    command = [sys.executable, "-m", "tfsched.cli", "tune", *map(str, SMALL), "--samples", "40", "--noise", "0.05"]
    command += ["--csv", "log.csv", "--plot", "log.png", "--memory", "memory.json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path, env=environment)
    assert (result.returncode, result.stderr) == (0, "")
    *_, reason, line = result.stdout.splitlines()
    assert "samples of" in reason and reason.endswith(".")
    assert "setting" in result.stdout and "chosen" in result.stdout
    options = options_in(line)
    chosen = Setting(options.partition_bytes, options.credit_bytes, options.policy)
    assert not options.barrier and options.ordering == "bytescheduler"
    rows = list(csv.DictReader((tmp_path / "log.csv").open()))
    assert len(rows) <= 40
    last = rows[-1]
    assert (int(last["best_partition_bytes"]), int(last["best_credit_bytes"]), last["best_policy"]) == chosen
    assert (tmp_path / "log.png").read_bytes().startswith(b"\x89PNG")
    remembered = json.loads((tmp_path / "memory.json").read_text())["results"][0]
    assert Setting(*(remembered[name] for name in Setting._fields)) == chosen


@pytest.mark.parametrize("architecture", ["ps", "allreduce"])
@pytest.mark.parametrize("search", SEARCHES)
def test_without_noise_what_it_chooses_is_as_fast_as_it_says(search, architecture):
    where = [*SMALL, "--architecture", architecture]
    found = call("tune", *where, "--search", search, "--samples", 40, "--json").json()
    setting = found["setting"]
    text = ":".join(["bytescheduler", *(f"{name}={value}" for name, value in setting.items())])
    result = call("simulate", *where, "--method", f"{text},bytescheduler", "--json").json()["methods"]
    assert found["seconds"] == pytest.approx(result[text]["median_us"] / 1e6)
    assert found["first_seconds"] == pytest.approx(result["bytescheduler"]["median_us"] / 1e6)
    assert found["first"] == FIRST and found["seconds"] < found["first_seconds"]
    options = options_in(found["options"])
    assert {name: getattr(options, name) for name in setting} == setting


def test_the_same_seed_gives_the_same(tmp_path):
    def log(seed):
        path = tmp_path / "log.csv"
        answer = call("tune", *SMALL, "--samples", 30, "--noise", 0.05, "--seed", seed, "--csv", path, "--quiet")
        assert (answer.code, answer.out) == (0, "")
        return path.read_text()

    assert log(1) == log(1) != log(2)


def test_the_second_run_begins_with_what_the_first_remembered(tmp_path):
    memory, path = tmp_path / "memory.json", tmp_path / "log.csv"
    arguments = ["tune", *SMALL, "--samples", 40, "--memory", memory, "--csv", path]
    chosen = call(*arguments, "--json").json()["setting"]
    assert chosen != FIRST
    call(*arguments, "--search", "random", "--samples", 20, "--quiet")
    row = next(row for row in csv.DictReader(path.open()) if row["why"] != "first setting")
    assert row["why"] == "remembered as the best"
    assert {name: type(value)(row[name]) for name, value in chosen.items()} == chosen
    other = call(*arguments, "--workers", 3, "--json").json()
    assert other["setting"] is not None and len(json.loads(memory.read_text())["results"]) == 2


def test_a_damaged_memory_is_told_and_ignored(tmp_path):
    memory = tmp_path / "memory.json"
    memory.write_text('{"format": "something else"}')
    answer = call("tune", *SMALL, "--samples", 20, "--search", "random", "--memory", memory)
    assert answer.code == 0 and "Options(" in answer.out
    assert answer.err.count("\n") == 1 and "is not of the format" in answer.err
    assert memory.read_text() == '{"format": "something else"}'


def test_policies_and_ranges_are_what_is_searched(tmp_path):
    path = tmp_path / "log.csv"
    asked = ["--policies", "p3,bytescheduler", "--partition_range", "200000,400000", "--credit_range", "500000,800000"]
    call("tune", *SMALL, "--search", "random", "--samples", 60, *asked, "--csv", path, "--quiet")
    rows = [row for row in csv.DictReader(path.open()) if "first" not in row["why"]]
    assert {row["policy"] for row in rows} == {"p3", "bytescheduler"}
    found = [row for row in rows if "at random" in row["why"]]
    assert all(200_000 <= int(row["partition_bytes"]) <= 400_000 for row in found)
    assert all(500_000 <= int(row["credit_bytes"]) <= 800_000 for row in found)


@pytest.mark.parametrize(("architecture", "without"), [("ps", set()), ("allreduce", {"tictac"})])
def test_every_policy_that_makes_a_difference_is_tried(tmp_path, architecture, without):
    path = tmp_path / "log.csv"
    arguments = ["--samples", 50, "--csv", path, "--quiet", "--architecture", architecture]
    call("tune", *SMALL, *arguments)
    assert {row["policy"] for row in csv.DictReader(path.open())} == set(POLICIES) - without


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["--method", "tio,tao"], "--method names 2 methods"),
        (["--method", "vanilla"], "'vanilla' is stock TensorFlow"),
        (["--method", "best"], "method 'best' is unknown"),
        (["--samples", "5"], "budget is 5 samples; give 13 or more"),
        (["--search", "simplex"], "simplex"),
        (["--policies", "lifo"], "policies to search are lifo"),
        (["--partition_range", "1mb,2mb"], "--partition_range is '1mb,2mb'"),
        (["--partition_range", "200000"], "--partition_range is '200000'"),
        (["--credit_range", "2000,1000"], "bounds of credit_bytes are 2000, 1000"),
        (["--noise", "-1"], "noise"),
        (["--noise", "inf"], "noise"),
        (["--memory", "/nowhere/at/all.json", "--search", "random"], "/nowhere/at/all.json cannot be written"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, wrong):
    answer = call("tune", *SMALL, "--quiet", *arguments)
    assert answer.code == 2
    assert wrong in answer.err and answer.err.count("\n") == 1
