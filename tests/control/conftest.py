"""What these tests share: where tasks are forked, and how a command line is run."""

import contextlib
import io

import pytest

from tests.cluster.cluster import task_environment
from tests.cluster.nurseries import Nurseries
from tfsched import cli


@pytest.fixture(scope="session")
def nursery():
    """Where clusters fork their tasks."""
    with Nurseries(task_environment()) as nursery:
        yield nursery


@pytest.fixture
def top(monkeypatch):
    """``tfsched top ...`` in this process: its exit code and what it printed."""
    monkeypatch.delenv("TFSCHED_CONTROL_TOKEN", raising=False)

    def call(*arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.run(["top", *arguments])
        return code, out.getvalue() + err.getvalue()

    return call
