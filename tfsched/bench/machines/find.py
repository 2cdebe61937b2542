"""Chooses where the tasks of `--cluster` run."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from tfsched.bench.errors import BenchError
from tfsched.bench.machines import hosts_file, slurm
from tfsched.bench.machines.base import Machines
from tfsched.bench.machines.over_ssh import SshMachines
from tfsched.bench.machines.places import PS, WORKER, assign, count_of
from tfsched.bench.machines.serving import Serving
from tfsched.bench.machines.slurm import SlurmMachines
from tfsched.bench.machines.started import StartedMachines
from tfsched.bench.machines.tf_config import VARIABLE, read_started

SLURM, TF_CONFIG = "slurm", "tf_config"


def find_machines(
    cluster: str, api: str, ps: int | None, workers: int | None, show: bool, timeout_s: float
) -> tuple[Machines | Serving, int, int]:
    """The machines of `--cluster`, and how many parameter servers and workers they have.

    In the place of machines it is what a task does that the user has started, and that does not measure.

    Args:
        cluster: a YAML file, "slurm" or "tf_config".
        api: as of BenchConfig.
        ps, workers: as the user gave them; None says nothing. Only Slurm's nodes have no roles of their own.
        show: whether what tasks print is shown.
        timeout_s: how long tasks that the user starts may take to come.

    Raises:
        BenchError: there is no such cluster, or what it says makes no sense.
    """
    for flag, count in (("ps", ps), ("workers", workers)):
        if count is not None and cluster != SLURM:
            raise BenchError(f"--{flag} is {count} and the tasks come from --cluster {cluster}: leave --{flag} out")
    if cluster == SLURM:
        assigned = assign(slurm.read_places(api, ps, workers), api, "the Slurm job")
        machines: Machines | Serving = SlurmMachines(assigned, show)
    elif cluster == TF_CONFIG:
        started = read_started()
        assigned = assign(started.places, api, VARIABLE)
        if started.own is started.first:
            machines = StartedMachines(assigned, started.own, timeout_s)
        else:
            machines = Serving(started.own, started.first, timeout_s)
    else:
        assigned = assign(hosts_file.read_places(cluster), api, cluster)
        machines = SshMachines(assigned, show)
    return machines, count_of(assigned, PS), count_of(assigned, WORKER)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Within it, SIGTERM and SIGHUP end the program through its context managers, so that no task is left elsewhere."""

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
