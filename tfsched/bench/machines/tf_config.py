"""Reads TF_CONFIG: the tasks that a user, or a cluster manager, has started, and which of them this process is."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from tfsched.bench.errors import BenchError
from tfsched.bench.machines.places import CHIEF, ROLES, WORKER, Place

VARIABLE = "TF_CONFIG"
_EXAMPLE = '{"cluster": {"ps": ["node1:2222"], "worker": ["node2:2222"]}, "task": {"type": "worker", "index": 0}}'


@dataclasses.dataclass(frozen=True)
class Started:
    """The tasks of TF_CONFIG.

    Attributes:
        places: of all tasks; `host` is the address with its port, which no other task has.
        own: this process's.
        first: the chief's, or the first worker's, which measures and prints.
    """

    places: list[Place]
    own: Place
    first: Place


def read_started(text: str | None = None) -> Started:
    """The tasks of TF_CONFIG; `text` is its value, None reads it from the environment.

    Raises:
        BenchError: it is not set, or not what TensorFlow would take.
    """
    text = os.environ.get(VARIABLE) if text is None else text
    if not text:
        raise BenchError(f"{VARIABLE} is not set: start the bench in each task with it, as in {VARIABLE}='{_EXAMPLE}'")
    try:
        content = json.loads(text)
    except ValueError as error:
        raise BenchError(f"{VARIABLE} is {text!r}, which is no JSON ({error}): write it as {_EXAMPLE}") from None
    jobs, task = _parts(text, content)
    places = {
        (job, index): _place(job, address) for job, addresses in jobs.items() for index, address in enumerate(addresses)
    }
    hosts = [place.host for place in places.values()]
    for host in hosts:
        if hosts.count(host) > 1:
            raise BenchError(f"{VARIABLE} has the address {host!r} twice: give each task a port of its own")
    if task not in places:
        raise BenchError(
            f"{VARIABLE} says that this task is {task[0]} {task[1]}, which its cluster does not have: correct one of both"
        )
    first = places.get((CHIEF, 0), places.get((WORKER, 0)))
    if first is None:
        raise BenchError(f"{VARIABLE} has no chief and no worker: add a worker")
    return Started(list(places.values()), places[task], first)


def _parts(text: str, content: Any) -> tuple[dict[str, list[str]], tuple[str, int]]:
    """The jobs' addresses, and the task's job and index."""
    wrong = BenchError(f"{VARIABLE} is {text!r}, which is not of the form {_EXAMPLE}: correct it")
    if not isinstance(content, dict):
        raise wrong
    jobs, task = content.get("cluster"), content.get("task")
    if not isinstance(jobs, dict) or not isinstance(task, dict) or {"type", "index"} - task.keys():
        raise wrong
    for job, addresses in jobs.items():
        if job not in ROLES:
            raise BenchError(f"{VARIABLE} has the job {job!r}: the bench has a use for {', '.join(ROLES)}, so leave it out")
        if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
            raise wrong
    try:
        return jobs, (str(task["type"]), int(task["index"]))
    except (TypeError, ValueError):
        raise wrong from None


def _place(job: str, address: str) -> Place:
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise BenchError(f"{VARIABLE} has the address {address!r}: write it as host:port")
    return Place(host=address, role=job, address=host)
