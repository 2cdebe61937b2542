"""The command line as a user's shell starts it, and what is left of its processes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 100
# What tells a process of these tests from any other, in /proc/PID/environ.
MARK = "TFSCHED_TEST_OF_RUN"


class Command:
    """One `tfsched` with all that it starts."""

    def __init__(self, *arguments, env=None, cwd=None):
        self.mark = f"{MARK}={os.getpid()}-{time.monotonic_ns()}"
        name, _, value = self.mark.partition("=")
        kept = {key: text for key, text in os.environ.items() if not key.startswith("TFSCHED_") and key != "TF_CONFIG"}
        paths = [str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "", "TF_ENABLE_ONEDNN_OPTS": "0"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tfsched.cli", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**kept, **quiet, "PYTHONPATH": os.pathsep.join(paths), name: value, **(env or {})},
            cwd=cwd,
            start_new_session=True,
        )
        self.out = self.err = ""
        self.code = None

    def wait(self, timeout_s=LIMIT_S):
        """Waits for the end; returns itself."""
        try:
            self.out, self.err = self.process.communicate(timeout=timeout_s)
        finally:
            self.kill()
        self.code = self.process.returncode
        return self

    def left(self):
        """Ids of its processes and theirs that are still there, zombies excepted."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdecimal() and self.mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def wait_until_none_is_left(self, timeout_s=30):
        """Raises AssertionError where some are."""
        deadline_s = time.monotonic() + timeout_s
        while self.left():
            assert time.monotonic() < deadline_s, f"processes {self.left()} were left"
            time.sleep(0.05)

    def wait_for_line(self, text, timeout_s=90):
        """Reads stdout until a line has the text in it."""
        deadline_s = time.monotonic() + timeout_s
        os.set_blocking(self.process.stdout.fileno(), True)
        while time.monotonic() < deadline_s:
            line = self.process.stdout.readline()
            if text in line:
                return line
            assert line, f"{text!r} did not come: {self.process.stderr.read()}"
        raise AssertionError(f"{text!r} did not come")

    def kill(self):
        """Ends whatever is left, each process by its id."""
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def start():
    """Starts commands that the test's end ends."""
    started = []

    def begin(*arguments, **more):
        started.append(Command(*arguments, **more))
        return started[-1]

    yield begin
    for command in started:
        command.kill()
        command.process.communicate(timeout=20)


@pytest.fixture
def write(tmp_path):
    """Writes a program; returns its path."""

    def write(text, name="program.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write
