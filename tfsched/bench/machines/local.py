"""Tasks on this machine: in network namespaces behind limited links, or on loopback."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from tfsched.bench import pinning
from tfsched.bench.links import Link
from tfsched.bench.machines.base import Machines, python_of_this_process
from tfsched.bench.machines.piped import PipedTask
from tfsched.bench.testbed import Hosts, Testbed


def own_environment() -> dict[str, str]:
    """The environment of a task in this process's Python: it finds this very tfsched."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    # Else Python, from 3.11 on, looks in the working directory first, which may be a checkout with another tfsched.
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


class LocalMachines(Machines):
    """One namespace a machine where the link asks for it, else loopback for all.

    Args:
        names: of all machines.
        link: how they are connected.
        apart: whether what links carry is processed on the cores of the network.
    """

    real = False

    def __init__(self, names: Sequence[str], link: Link, apart: bool) -> None:
        super().__init__()
        self.hosts = Testbed(names, link.bandwidth_bps) if link.kind == "netns" else Hosts(names)
        self._apart = apart

    def address(self, name: str) -> str:
        return self.hosts.address(name)

    def _launch(self, process: str, name: str) -> PipedTask:
        del process
        pipes = {stream: subprocess.PIPE for stream in ("stdin", "stdout", "stderr")}
        return PipedTask(self.hosts.exec(name, python_of_this_process(), env=own_environment(), **pipes))

    def open(self) -> None:
        self.hosts.__enter__()
        if self._apart and isinstance(self.hosts, Testbed):
            self.hosts.receive_on(pinning.halves(os.sched_getaffinity(0))[0])

    def close(self) -> None:
        super().close()
        self.hosts.close()
