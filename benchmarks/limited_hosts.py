"""Starts a benchmark's own file once on each host of a testbed; for the benchmarks that train behind limited links."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tfsched.bench.testbed import Testbed

PORT = 2222


def start_tasks(hosts: Testbed, path: str, given: dict[str, Any]) -> dict[str, subprocess.Popen[str]]:
    """The process of each host, whose name is a job's and a number.

    Args:
      hosts: where they run.
      path: the file, which gets all that it has to know as JSON behind ``--task``.
      given: what all of them are told, besides "cluster", "job" and "index".
    """
    cluster: dict[str, list[str]] = {}
    for name in hosts.names:
        cluster.setdefault(name[:-1], []).append(f"{hosts.address(name)}:{PORT}")
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    processes = {}
    for name in hosts.names:
        task = {**given, "cluster": cluster, "job": name[:-1], "index": int(name[-1])}
        command = [sys.executable, os.path.abspath(path), "--task", json.dumps(task)]
        processes[name] = hosts.exec(
            name, command, stdout=subprocess.PIPE, text=True, env={**environment, "CUDA_VISIBLE_DEVICES": ""}
        )
    return processes
