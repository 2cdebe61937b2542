"""The command line as users call it: real processes, exit codes, one-line errors, files."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

DAG = {
    "format": "tfsched-dag/1",
    "resources": {"w/compute": {"kind": "compute"}, "ps>w": {"kind": "link", "bandwidth_bps": 1e9}},
    "ops": [
        {"name": "recv/b", "resource": "ps>w", "bytes": 1000000, "inputs": []},
        {"name": "recv/a", "resource": "ps>w", "bytes": 1000000, "inputs": []},
        {"name": "first", "resource": "w/compute", "time_us": 8000, "inputs": ["recv/a"]},
        {"name": "second", "resource": "w/compute", "time_us": 8000, "inputs": ["recv/b", "first"]},
    ],
}


def tfsched(*arguments, env=None, timeout=100):
    return subprocess.run(
        [sys.executable, "-m", "tfsched.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **(env or {})},
    )


@pytest.fixture
def dag(tmp_path):
    path = tmp_path / "dag.json"
    path.write_text(json.dumps(DAG))
    return path


def test_help_lists_the_commands():
    result = tfsched("--help")
    assert result.returncode == 0
    assert all(name in result.stdout for name in ("doctor", "bench", "trace", "order", "timeline"))


@pytest.mark.parametrize("command", ["doctor", "bench", "trace", "order", "timeline"])
def test_every_flag_names_its_environment_variable(command):
    result = tfsched(command, "--help")
    assert result.returncode == 0
    flags = [line for line in result.stdout.splitlines() if line.startswith("  --")]
    assert flags
    assert result.stdout.count(f"[TFSCHED_{command.upper()}_") == len(flags)


def test_order_writes_a_plan_and_prints_json(dag, tmp_path):
    plan = tmp_path / "plan.json"
    result = tfsched("order", dag, "--algorithm", "tao", "--plan", plan, "--json")
    assert result.returncode == 0, result.stderr
    printed = json.loads(result.stdout)
    assert printed["order"] == ["recv/a", "recv/b"]
    assert printed["lower_bound_us"] == 16000
    assert printed["makespan_us"] == 8000 + 8000 + 8000
    assert json.loads(plan.read_text()) == printed["plan"]


@pytest.mark.parametrize("algorithm", ["tio", "tao", "random", "layer", "fifo"])
def test_every_algorithm_orders(dag, algorithm):
    result = tfsched("order", dag, "--algorithm", algorithm, "--json")
    assert result.returncode == 0, result.stderr
    assert sorted(json.loads(result.stdout)["order"]) == ["recv/a", "recv/b"]


def test_a_flag_takes_its_default_from_the_environment(dag):
    result = tfsched("order", dag, "--json", env={"TFSCHED_ORDER_ALGORITHM": "layer"})
    assert json.loads(result.stdout)["algorithm"] == "layer"
    result = tfsched("order", dag, "--json", "--algorithm", "tao", env={"TFSCHED_ORDER_ALGORITHM": "layer"})
    assert json.loads(result.stdout)["algorithm"] == "tao"


def test_a_plugin_adds_an_ordering(dag, tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "import tfsched.ordering as o\n"
        "@o.register('backwards')\n"
        "def backwards(dag, times_us=None, *, seed=0):\n"
        "    return {op.name: -i for i, op in enumerate(dag.recvs)}\n"
    )
    result = tfsched("order", dag, "--plugin", plugin, "--algorithm", "backwards", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["order"] == ["recv/a", "recv/b"]


MISTAKES = [
    (["frobnicate"], "frobnicate"),
    (["order"], "one file"),
    (["order", "/no/such/file"], "/no/such/file"),
    (["order", "{dag}", "--algorithm", "nope"], "nope"),
    (["order", "{dag}", "--seed", "x"], "--seed"),
    (["order", "{dag}", "--frobnicate"], "frobnicate"),
    (["order", "{dag}", "--plan", "/no/such/directory/plan.json"], "/no/such/directory"),
    (["order", "{bad}"], "not JSON"),
    (["timeline", "{dag}"], "tfsched-dag/1"),
    (["timeline"], "one trace"),
    (["trace"], "--script"),
    (["trace", "--script", "/no/such/script.py"], "/no/such/script.py"),
    (["bench", "--model", "nope", "--link", "none"], "nope"),
    (["bench", "--settings", "nope", "--link", "none"], "nope"),
    (["bench", "--bandwidth", "fast"], "fast"),
    (["bench", "--batch", "0", "--link", "none"], "batch"),
    (["bench", "extra"], "extra"),
    (["bench", "--inputs", "nope", "--link", "none"], "--inputs nope is for what predictions are made from"),
    (["doctor", "extra"], "extra"),
]


@pytest.mark.parametrize(("arguments", "words"), MISTAKES, ids=[" ".join(arguments) for arguments, _ in MISTAKES])
def test_a_mistake_is_one_line_and_exit_code_2(arguments, words, dag, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    result = tfsched(*(argument.format(dag=dag, bad=bad) for argument in arguments))
    assert result.returncode == 2, result.stderr
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert not result.stdout


def test_an_environment_variable_that_is_of_no_use_is_named(dag):
    result = tfsched("order", dag, env={"TFSCHED_ORDER_SEED": "seven"})
    assert result.returncode == 2
    assert "TFSCHED_ORDER_SEED" in result.stderr


@pytest.mark.timeout(400)  # it starts several clusters, one after another
def test_doctor_sees_a_real_transfer_go_through_the_scheduler():
    result = tfsched("doctor", "--json", timeout=360)
    checks = {check["what"]: check for check in json.loads(result.stdout)}
    assert result.returncode == 0, result.stdout
    assert checks["pass"]["ok"] and "4 transfers ordered" in checks["pass"]["detail"]
    assert checks["transfers"]["ok"]
    assert checks["barrier"]["ok"] and "4 of 4" in checks["barrier"]["detail"]
    assert checks["tf.function"]["ok"] and "4 transfers ordered; 4 went through" in checks["tf.function"]["detail"]
    assert "4 of 4" in checks["tf.function"]["detail"]
    detail = checks["all-reduce"]["detail"]
    assert checks["all-reduce"]["ok"] and "4 of 4 gradients" in detail and "3 of 3 steps" in detail


@pytest.mark.timeout(400)
def test_doctor_uses_its_own_tfsched_in_the_directory_of_another_one(tmp_path):
    """As in a checkout behind `pip install .`: its tfsched has no library, and Python looks there first."""
    (tmp_path / "tfsched").mkdir()
    (tmp_path / "tfsched" / "__init__.py").write_text("raise SystemExit('another tfsched')\n")
    command = [str(pathlib.Path(sys.executable).with_name("tfsched")), "doctor", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=360, check=False)
    checks = json.loads(done.stdout[done.stdout.index("[") :])
    assert {one["what"] for one in checks if not one["ok"]} <= {"network namespaces"}
    assert {"pass", "barrier", "tf.function", "all-reduce"} <= {one["what"] for one in checks}


def test_doctor_says_what_to_do_without_the_library():
    result = tfsched("doctor", env={"TFSCHED_LIBRARY": "/no/such/libtfsched.so"})
    assert result.returncode == 1
    assert "failed  native library" in result.stdout
    assert "remedy: " in result.stdout


def test_a_library_for_another_tensorflow_is_one_clear_sentence(tmp_path):
    from tfsched.ops import library

    path = tmp_path / "libtfsched.so"
    path.write_bytes(library.library_path().read_bytes())
    path.with_suffix(".json").write_text(json.dumps({"tensorflow": "2.5.0"}))
    code = "import tfsched\ntry:\n    tfsched.load()\nexcept tfsched.TfschedError as error:\n    print(error)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "TFSCHED_LIBRARY": str(path)},
    )
    assert "built for TensorFlow 2.5.0, but this is TensorFlow" in result.stdout
    assert len(result.stdout.strip().splitlines()) == 1


def test_a_file_that_is_no_library_is_one_clear_sentence(tmp_path):
    path = tmp_path / "libtfsched.so"
    path.write_bytes(b"not a library")
    result = tfsched("doctor", env={"TFSCHED_LIBRARY": str(path)})
    assert result.returncode == 1
    assert "failed  library loads" in result.stdout
