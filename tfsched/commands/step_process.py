"""Steps that the doctor tries in processes of their own: how such a process is asked, and how it answers."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

# Where this tfsched's package lies. A Python that is given -m or -c looks in the working directory first, which may be a
# checkout whose tfsched is another one, without a native library.
ROOT = str(pathlib.Path(__file__).resolve().parents[2])


def wait_until_listening(process: subprocess.Popen[bytes], address: str, timeout_s: float) -> str:
    """Waits for a task's process to listen at ``address``; why it does not, or "".

    TensorFlow itself waits for ever for a task that has died.
    """
    host, _, port = address.rpartition(":")
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        if process.poll() is not None:
            return f"the parameter server's process ended with exit code {process.returncode} before it listened"
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return ""
        except OSError:
            time.sleep(0.05)
    return f"the parameter server did not listen at {address} within {timeout_s:g} s"


def ask(module: str, cluster: dict[str, list[str]], timeout_s: float) -> dict[str, Any]:
    """Runs ``python -m module CLUSTER``; what it answers, or an ``error``."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, json.dumps(cluster)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=timeout_s,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            cwd=ROOT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"its steps did not end within {timeout_s:g} s"}
    answer: dict[str, Any] = json.loads(done.stdout or f'{{"error": "its process died with exit code {done.returncode}"}}')
    return answer


def answer(run: Callable[[], dict[str, Any]]) -> None:
    """Prints what ``run`` returns, or an ``error``, and ends at once: TensorFlow may wait for its peers otherwise."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # TensorFlow and its libraries print as they like
    try:
        said = run()
    except Exception as error:  # whatever it is, the doctor has to hear of it
        said = {"error": (str(error).splitlines() or [type(error).__name__])[0]}
    print(json.dumps(said), file=answers, flush=True)
    os._exit(0)
