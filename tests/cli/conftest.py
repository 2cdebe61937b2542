"""The command line in this process, and what it reads: a DAG, a layer table, a trace and a RunMetadata of a real cluster."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
from typing import NamedTuple

import pytest

from tfsched import cli

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    def json(self):
        assert self.code == 0, self.err
        return json.loads(self.out)


def call(*arguments) -> Answer:
    """One command line, in this process: what a traceback would be is an exception here."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run([str(argument) for argument in arguments])
    return Answer(code, out.getvalue(), err.getvalue())


DAG = {
    "format": "tfsched-dag/1",
    "resources": {"w/compute": {"kind": "compute"}, "ps>w": {"kind": "link", "bandwidth_bps": 1e9, "startup_us": 5}},
    "ops": [
        {"name": "recv/c", "resource": "ps>w", "bytes": 500000, "inputs": []},
        {"name": "recv/b", "resource": "ps>w", "bytes": 1000000, "inputs": []},
        {"name": "recv/a", "resource": "ps>w", "bytes": 1000000, "inputs": []},
        {"name": "first", "resource": "w/compute", "time_us": 8000, "inputs": ["recv/a"]},
        {"name": "second", "resource": "w/compute", "time_us": 4000, "inputs": ["recv/b", "first"]},
        {"name": "third", "resource": "w/compute", "time_us": 2000, "inputs": ["recv/c", "second"]},
    ],
}

LAYERS = """name,forward_us,backward_us,parameter_bytes
conv1,1000,2000,40000
relu,50,50,0
conv2,2000,4000,400000
dense,500,1000,4000000
"""

CLUSTER = """workers: 2
servers: 2
bandwidth_bps: 1gbit
startup_us: 20
straggler: normal
straggler_scale: 0.05
"""


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """A directory with trace.json.gz, metadata.pb and bare.pb of a real step, and dag.json, layers.csv, cluster.yaml."""
    directory = tmp_path_factory.mktemp("recorded")
    path = pathlib.Path(__file__).with_name("record.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    result = subprocess.run(
        [sys.executable, str(path), str(directory)], capture_output=True, text=True, timeout=100, env=environment
    )
    assert result.returncode == 0, result.stderr
    (directory / "dag.json").write_text(json.dumps(DAG))
    (directory / "layers.csv").write_text(LAYERS)
    (directory / "cluster.yaml").write_text(CLUSTER)
    return directory
