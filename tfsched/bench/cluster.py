"""Starts, watches and ends the bench's cluster: one process a task on some machines."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from tfsched.bench import busy, pinning, stolen
from tfsched.bench.errors import BenchFailed
from tfsched.bench.links import Link
from tfsched.bench.machines.base import COORDINATION, Machines, TaskProcess
from tfsched.bench.machines.local import LocalMachines
from tfsched.bench.machines.piped import PipedTask
from tfsched.bench.settings import STOCK
from tfsched.bench.testbed import wait_until
from tfsched.version import __version__

_START_TIMEOUT_S = 180.0


def _replica_name(index: int, protocol: str) -> str:
    return f"worker{index} ({protocol})"


class Cluster:
    """A running cluster; a context manager. One server a protocol in each task.

    The servers of all protocols live in the same processes on the same machines, so settings of
    different protocols can take turns step by step and meet the same conditions. The numbers of threads
    are those of each worker, 0 for TensorFlow's default; parameter servers have that always.

    With `coordinators` there is one more machine, with a process a protocol that coordinates the workers: TensorFlow's
    coordinator can speak to one cluster only. With `replicas` (the `api` and `loop` of workers that all-reduce) the workers'
    programs make their servers themselves, one a process, so each machine has a process a protocol, of which one is at work.
    With `apart` workers compute on cores of their own, from the first call on. Without `machines` all tasks are on this one.

    Attributes:
        machines: where the tasks run.
        tensorflow: its version, the same in all tasks.
        cores: that worker 0 may use.
    """

    def __init__(
        self,
        ps: int,
        workers: int,
        link: Link,
        protocols: tuple[str, ...] = (STOCK,),
        intra_op_threads: int = 0,
        inter_op_threads: int = 0,
        timeout_s: float = 300.0,
        coordinators: bool = False,
        replicas: dict[str, str] | None = None,
        apart: bool = False,
        machines: Machines | None = None,
    ) -> None:
        self.tasks = [("ps", i) for i in range(ps)] + [("worker", i) for i in range(workers)]
        self.workers = workers
        self._link = link
        self.protocols = protocols
        # A job's threads; 0 is TensorFlow's default.
        self._threads = {
            "ps": {"intra_op_threads": 0, "inter_op_threads": 0},
            "worker": {"intra_op_threads": intra_op_threads, "inter_op_threads": inter_op_threads},
            # A function runs with the inter-op threads that its coordinator asks for.
            "chief": {"intra_op_threads": 0, "inter_op_threads": inter_op_threads},
        }
        # Protocol -> the process that coordinates.
        self.coordinators = {protocol: f"coordinator{n}" for n, protocol in enumerate(protocols) if coordinators}
        # Protocol -> the processes that train with it, in the order of the workers.
        self._replicas = {
            protocol: [_replica_name(index, protocol) for index in range(workers)] for protocol in protocols if replicas
        }
        self._replica = replicas
        self._timeout_s = timeout_s
        self._apart = apart
        self._processes: dict[str, TaskProcess] = {}
        self._buffers: dict[str, bytes] = {}
        names = [f"{job}{index}" for job, index in self.tasks]
        all_names = [*names, *([COORDINATION] if self.coordinators else [])]
        self.machines: Machines = machines or LocalMachines(all_names, link, apart)
        # Process -> its machine, its task, and the protocols of its servers.
        self._placed: dict[str, tuple[str, str, int, tuple[str, ...]]] = {}
        for name, (job, index) in zip(names, self.tasks, strict=True):
            for protocol in self._replicas:
                self._placed[_replica_name(index, protocol)] = name, job, index, (protocol,)
            if not self._replicas:
                self._placed[name] = name, job, index, protocols
        for protocol, process in self.coordinators.items():
            self._placed[process] = COORDINATION, "chief", 0, (protocol,)
        self.tensorflow = ""
        self.cores = 0

    def __enter__(self) -> Cluster:
        self.machines.open()
        try:
            for process, (machine, *_, protocols) in self._placed.items():
                self._processes[process] = self.machines.start(process, machine)
                self._buffers[process] = b""
                ports = self.machines.ports(machine, len(protocols))
                self._send(process, {"do": "hello", "environment": self._environment(), "ports": ports})
            limit_s = max(_START_TIMEOUT_S, self._timeout_s)
            deadline_s = time.monotonic() + limit_s
            hellos = dict(zip(self._placed, self._receive(self._placed, limit_s, "start"), strict=True))
            self._check_versions(hellos)
            clusters = self._addresses({process: hello["ports"] for process, hello in hellos.items()})
            for process, (_, job, index, protocols) in self._placed.items():
                spec = {
                    "clusters": {protocol: self._seen_by(job, clusters[protocol]) for protocol in protocols},
                    "job": job,
                    "task": index,
                    "replica": self._replica,
                    "timeout_s": self._timeout_s,
                    **self._threads[job],
                }
                self._send(process, {"do": "start", **spec})
            self._receive(self._placed, deadline_s - time.monotonic(), "start")
        except BaseException:
            self.close()
            raise
        return self

    def _check_versions(self, hellos: dict[str, dict[str, Any]]) -> None:
        """Takes what the tasks tell of their machines, which must have one TensorFlow and this tfsched."""
        first = next(process for process in hellos if process.startswith("worker"))
        self.tensorflow, self.cores = hellos[first]["tensorflow"], hellos[first]["cores"]
        for process, hello in hellos.items():
            for what, wanted, where in (
                ("tfsched", __version__, "the bench"),
                ("TensorFlow", self.tensorflow, self._describe(first)),
            ):
                if hello[what.lower()] != wanted:
                    raise BenchFailed(
                        f"{self._describe(process)} has {what} {hello[what.lower()]} and {where} has {wanted}: install the "
                        "same version in both"
                    )

    def _addresses(self, ports: dict[str, list[int]]) -> dict[str, dict[str, list[str]]]:
        """Protocol -> job -> host:port of each task."""
        clusters: dict[str, dict[str, list[str]]] = {protocol: {} for protocol in self.protocols}
        for process, (machine, job, _, protocols) in self._placed.items():
            for protocol, port in zip(protocols, ports[process], strict=True):
                clusters[protocol].setdefault(job, []).append(f"{self.machines.address(machine)}:{port}")
        return clusters

    @staticmethod
    def _seen_by(job: str, cluster: dict[str, list[str]]) -> dict[str, list[str]]:
        """A cluster as a task of a job sees it: a session that the bounds use must not wait for a coordinator."""
        return cluster if job == "chief" else {name: tasks for name, tasks in cluster.items() if name != "chief"}

    def _environment(self) -> dict[str, str]:
        environment = {"CUDA_VISIBLE_DEVICES": ""}
        if self._link.kind == "emulated":
            environment["TFSCHED_EMULATED_BPS"] = f"{self._link.bandwidth_bps:.0f}"
        return environment

    def _describe(self, process: str) -> str:
        return self.machines.describe(process, self._placed[process][0])

    def pid(self, name: str) -> int:
        """The process (and process group) of a task of this machine, e.g. "ps0"."""
        process = self._processes[name]
        assert isinstance(process, PipedTask)
        return process.pid

    @property
    def one_clock(self) -> bool:
        """Whether all tasks read the same clock."""
        return not self.machines.real

    def stolen_s(self) -> float:
        """Processor time that others took from this machine so far, in seconds; 0 if the tasks are elsewhere."""
        return 0.0 if self.machines.real else stolen.stolen_s()

    def networking_busy_s(self) -> float | None:
        """For how long the cores of this machine that do the networking have been busy, in seconds; None if there are none.

        It is the mean of the cores that workers do not compute on.
        """
        if self.machines.real or not self._apart:
            return None
        return busy.busy_s(pinning.halves(os.sched_getaffinity(0))[0])

    def call(self, timeout_s: float | None = None, to: str = "worker0", **request: Any) -> dict[str, Any]:
        """Sends a request to worker 0 or a coordinator and returns its answer; watches all tasks meanwhile."""
        self._pin()
        self._send(to, request)
        (answer,) = self._receive([to], timeout_s or self._timeout_s, request["do"])
        return answer

    def call_each(self, protocol: str, **request: Any) -> list[dict[str, Any]]:
        """Sends a request to the workers' processes that speak `protocol`; their answers in the workers' order."""
        self._pin()
        for name in self._replicas[protocol]:
            self._send(name, request)
        return self._receive(self._replicas[protocol], self._timeout_s, request["do"])

    def _pin(self) -> None:
        if not self._apart:
            return
        # Each time anew: sessions and functions start threads. A worker's processes share its cores.
        for names in self._replicas.values():
            pinning.pin([self.pid(name) for name in names], [])
        if not self._replicas:
            workers = [name for name in self._processes if name.startswith("worker")]
            others = self._processes.keys() - set(workers)
            pinning.pin([self.pid(name) for name in workers], [self.pid(name) for name in others])

    def _send(self, name: str, request: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it died: reported where its answer is waited for
            self._processes[name].write(json.dumps(request).encode() + b"\n")

    def _receive(self, wanted: Iterable[str], timeout_s: float, doing: str) -> list[dict[str, Any]]:
        """The answers of some tasks, in this order. The first error ends it: the others may wait for whoever told it."""
        names = list(wanted)
        deadline_s = time.monotonic() + timeout_s
        answers: dict[str, dict[str, Any]] = {}
        with selectors.DefaultSelector() as selector:
            for name in names:
                selector.register(self._processes[name], selectors.EVENT_READ, name)
            while len(answers) < len(names):
                ready = selector.select(0.25)
                for key, _ in ready:
                    data = self._processes[key.data].read()
                    self._buffers[key.data] += data
                    if b"\n" in data:
                        answers[key.data] = self._answer(key.data)
                        selector.unregister(key.fileobj)
                    elif not data:
                        self._check_alive()
                if not ready:
                    self._check_alive()
                if time.monotonic() > deadline_s:
                    late = next(name for name in names if name not in answers)
                    raise BenchFailed(
                        f"{self._describe(late)} did not finish '{doing}' within {timeout_s:.0f} s: raise "
                        f"--timeout_s or use a smaller model or batch{self._tail(late)}"
                    )
        return [answers[name] for name in names]

    def _answer(self, name: str) -> dict[str, Any]:
        """What a task has just said."""
        line, _, self._buffers[name] = self._buffers[name].partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            # A peer's death reaches the chief as an error of the step, often before its parent.
            wait_until(self._some_task_ended, 1.0)
            self._check_alive()
            raise BenchFailed(f"{self._describe(name)}: {answer['error']}" if self.machines.real else answer["error"])
        return answer

    def _some_task_ended(self) -> bool:
        return any(process.poll() is not None for process in self._processes.values())

    def _check_alive(self) -> None:
        for name, process in self._processes.items():
            if process.poll() is not None:
                where = self._describe(name) if self.machines.real else f"task {name}"
                raise BenchFailed(f"{where} {process.died()}{self._tail(name)}")

    def _tail(self, name: str) -> str:
        return "".join(f"\n  {name}: {line}" for line in self._processes[name].log())

    def close(self) -> None:
        """Ends all tasks and what their machines were given for them."""
        for process in self._processes.values():
            process.close()
        self._processes.clear()
        self.machines.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
