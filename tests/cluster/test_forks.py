"""Tasks that are forked from a process that has used tfsched: what they send leaves, without the parent's threads."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.timeout(150)


def test_tasks_forked_after_the_library_was_used_train():
    command = [sys.executable, "-m", "tests.cluster.forking"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    ordered = json.loads(done.stdout.splitlines()[-1])
    assert ordered["before"] == 0
    assert ordered["ps"] > 0 and ordered["worker"] > 0
