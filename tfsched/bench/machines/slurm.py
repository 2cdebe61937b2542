"""Tasks on the nodes of a Slurm job, each a job step of its own."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

from tfsched.bench.errors import BenchError
from tfsched.bench.machines.base import python_of_this_process
from tfsched.bench.machines.local import own_environment
from tfsched.bench.machines.over_ssh import StartingMachines
from tfsched.bench.machines.places import PS, WORKER, Place
from tfsched.bench.settings import ALL_REDUCING

NODES = "SLURM_JOB_NODELIST"
_TIMEOUT_S = 30.0
_MOST = 10_000


def read_places(api: str, ps: int | None, workers: int | None) -> list[Place]:
    """The job's nodes: the first `ps` are parameter servers, the next `workers` workers.

    Args:
        api: as of BenchConfig.
        ps: None is one, and where workers all-reduce none.
        workers: None is all nodes that are left.

    Raises:
        BenchError: there is no job, or it has too few nodes.
    """
    text = os.environ.get(NODES, "")
    if not text:
        raise BenchError(f"{NODES} is not set, so this is no Slurm job: start the bench within sbatch or salloc")
    nodes = node_names(text)
    if ps is None:
        ps = 0 if api in ALL_REDUCING else 1
    if workers is None:
        workers = len(nodes) - ps
    if workers < 1 or ps + workers > len(nodes):
        raise BenchError(
            f"the Slurm job has {len(nodes)} node(s), and {ps} ps and {max(1, workers)} worker(s) need "
            f"{ps + max(1, workers)}: ask for more nodes, or give smaller --ps and --workers"
        )
    roles = [PS] * ps + [WORKER] * workers
    return [
        Place(host=node, role=role, address=node, python=sys.executable) for node, role in zip(nodes, roles, strict=False)
    ]


def node_names(text: str) -> list[str]:
    """The nodes that a list in Slurm's short form names, by Slurm's own tool where that is installed."""
    if shutil.which("scontrol") is not None:
        command = ["scontrol", "show", "hostnames", text]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            raise BenchError(f"scontrol cannot expand {NODES}={text!r} ({error}): check the job") from None
        return done.stdout.split()
    return expand(text)


def expand(text: str) -> list[str]:
    """The names in Slurm's short form, as in "node[1-3,07],gpu2".

    Raises:
        BenchError: it is not of that form.
    """
    wrong = BenchError(f"{NODES} is {text!r}, which is no list of nodes: write it as in node[1-3],gpu2")
    names: list[str] = []
    for item in re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+|,,|[\[\]]", text):
        parts = re.split(r"\[([^\[\]]*)\]", item)
        if any("[" in part or "]" in part or "," in part for part in parts[::2]):
            raise wrong
        try:
            choices = [list(_numbers(part)) if place % 2 else [part] for place, part in enumerate(parts)]
        except ValueError:
            raise wrong from None
        names += map("".join, itertools.product(*choices))
    if not names or len(names) > _MOST or not all(names):
        raise wrong
    return names


def _numbers(text: str) -> Iterator[str]:
    """The numbers of "1-3,07", as wide as they are written."""
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or int(last or first) - int(first) > _MOST:
            raise ValueError(text)
        for number in range(int(first), int(last or first) + 1):
            yield str(number).zfill(len(first))


class SlurmMachines(StartingMachines):
    """Nodes of a job; each task is a step that shares its node's cores with the others."""

    def _command(self, place: Place) -> list[str]:
        return [
            *("srun", "--nodes=1", "--ntasks=1", f"--nodelist={place.host}", "--overlap", "--cpu-bind=none", "--export=ALL"),
            # Nodes have the job's environment, and not this program's own path to tfsched.
            *("env", f"PYTHONPATH={own_environment()['PYTHONPATH']}"),
        ]

    def _task(self, place: Place) -> list[str]:
        del place
        return python_of_this_process()
