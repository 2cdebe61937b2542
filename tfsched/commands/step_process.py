"""Steps that the doctor tries in processes of their own: how such a process is asked, and how it answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any


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
