"""Starts, watches and ends the bench's cluster: one process a task on the hosts of a testbed."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from types import TracebackType
from typing import Any

from tfsched._options import VARIABLES
from tfsched.bench import pinning
from tfsched.bench.errors import BenchFailed
from tfsched.bench.links import Link
from tfsched.bench.ports import free_ports
from tfsched.bench.settings import STOCK
from tfsched.bench.testbed import Hosts, Testbed, wait_until

_START_TIMEOUT_S = 180.0
_PORTS_IN_NAMESPACE = 2222
_LOG_LINES = 12
_COORDINATION = "coordination"  # the host of the coordinators


def _replica_name(index: int, protocol: str) -> str:
    return f"worker{index} ({protocol})"


class Cluster:
    """A running cluster; a context manager. One server a protocol in each task.

    The servers of all protocols live in the same processes on the same hosts, so settings of
    different protocols can take turns step by step and meet the same conditions. The numbers of threads
    are those of each worker, 0 for TensorFlow's default; parameter servers have that always.

    With `coordinators` there is one more host, with a process a protocol that coordinates the workers: TensorFlow's
    coordinator can speak to one cluster only. With `replicas` (the `api` and `loop` of workers that all-reduce) the workers'
    programs make their servers themselves, one a process, so each host has a process a protocol, of which one is at work.
    With `apart` workers compute on cores of their own, from the first call on.
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
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._buffers: dict[str, bytes] = {}
        self._logs = ""
        self.hosts: Hosts = Hosts([])
        self.tensorflow = ""

    def __enter__(self) -> Cluster:
        names = [f"{job}{index}" for job, index in self.tasks]
        self._logs = tempfile.mkdtemp(prefix="tfs-bench-")
        limited = self._link.kind == "netns"
        hosts = [*names, *([_COORDINATION] if self.coordinators else [])]
        self.hosts = Testbed(hosts, self._link.bandwidth_bps) if limited else Hosts(hosts)
        self.hosts.__enter__()
        try:
            if self._apart and isinstance(self.hosts, Testbed):
                self.hosts.receive_on(pinning.halves(os.sched_getaffinity(0))[0])
            clusters = self._addresses(names, limited)
            for (job, index), name in zip(self.tasks, names, strict=True):
                for protocol in self._replicas:
                    own = {protocol: clusters[protocol]}
                    self._start(_replica_name(index, protocol), name, job, index, own, self._replica)
                if not self._replicas:
                    self._start(name, name, job, index, clusters)
            for protocol, name in self.coordinators.items():
                self._start(name, _COORDINATION, "chief", 0, {protocol: self._with_chief(protocol, clusters[protocol])})
            deadline_s = time.monotonic() + _START_TIMEOUT_S
            for ready in self._receive(list(self._processes), deadline_s - time.monotonic(), "start"):
                self.tensorflow = ready["tensorflow"]
        except BaseException:
            self.close()
            raise
        return self

    def _addresses(self, names: list[str], limited: bool) -> dict[str, dict[str, list[str]]]:
        """Protocol -> job -> host:port of each task."""
        count = len(names) * len(self.protocols)
        ports = iter([] if limited else free_ports(count))
        clusters: dict[str, dict[str, list[str]]] = {}
        for number, protocol in enumerate(self.protocols):
            jobs: dict[str, list[str]] = {}
            for (job, _), name in zip(self.tasks, names, strict=True):
                port = _PORTS_IN_NAMESPACE + number if limited else next(ports)
                jobs.setdefault(job, []).append(f"{self.hosts.address(name)}:{port}")
            clusters[protocol] = jobs
        return clusters

    def _with_chief(self, protocol: str, jobs: dict[str, list[str]]) -> dict[str, list[str]]:
        """The cluster as its coordinator sees it; a session that the bounds use must not wait for that process."""
        limited = self._link.kind == "netns"
        port = _PORTS_IN_NAMESPACE + list(self.coordinators).index(protocol) if limited else free_ports(1)[0]
        return {**jobs, "chief": [f"{self.hosts.address(_COORDINATION)}:{port}"]}

    def _start(
        self,
        name: str,
        host: str,
        job: str,
        index: int,
        clusters: dict[str, dict[str, list[str]]],
        replica: dict[str, str] | None = None,
    ) -> None:
        spec = {
            "clusters": clusters,
            "job": job,
            "task": index,
            "replica": replica,
            "timeout_s": self._timeout_s,
            **self._threads[job],
        }
        with open(self._log_path(name), "wb") as log:
            self._processes[name] = self.hosts.exec(
                host,
                [sys.executable, "-m", "tfsched.bench.task", json.dumps(spec)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment(),
            )
        self._buffers[name] = b""

    def _environment(self) -> dict[str, str]:
        # A proxy would take the servers' connections to addresses that only exist in here. Options are each setting's.
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.lower().endswith("_proxy") and key != "TFSCHED_EMULATED_BPS" and key not in VARIABLES
        }
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        paths = [root, *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        environment["CUDA_VISIBLE_DEVICES"] = ""
        environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
        environment["PYTHONWARNINGS"] = "ignore"
        if self._link.kind == "emulated":
            environment["TFSCHED_EMULATED_BPS"] = f"{self._link.bandwidth_bps:.0f}"
        return environment

    def pid(self, name: str) -> int:
        """The process (and process group) of a task, e.g. "ps0"."""
        return self._processes[name].pid

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
        stdin = self._processes[name].stdin
        assert stdin is not None
        with contextlib.suppress(OSError):  # it died: reported where its answer is waited for
            stdin.write(json.dumps(request).encode() + b"\n")  # type: ignore[arg-type]
            stdin.flush()

    def _receive(self, names: list[str], timeout_s: float, doing: str) -> list[dict[str, Any]]:
        """The answers of some tasks, in this order. The first error ends it: the others may wait for whoever told it."""
        deadline_s = time.monotonic() + timeout_s
        answers: dict[str, dict[str, Any]] = {}
        with selectors.DefaultSelector() as selector:
            for name in names:
                stdout = self._processes[name].stdout
                assert stdout is not None
                selector.register(stdout, selectors.EVENT_READ, name)
            while len(answers) < len(names):
                ready = selector.select(0.25)
                for key, _ in ready:
                    data = os.read(key.fd, 1 << 16)
                    self._buffers[key.data] += data
                    if b"\n" in data:
                        answers[key.data] = self._answer(key.data)
                        selector.unregister(key.fileobj)
                    elif not data:
                        with contextlib.suppress(subprocess.TimeoutExpired):
                            self._processes[key.data].wait(5)
                        self._check_alive()
                if not ready:
                    self._check_alive()
                if time.monotonic() > deadline_s:
                    late = next(name for name in names if name not in answers)
                    raise BenchFailed(
                        f"{late} did not finish '{doing}' within {timeout_s:.0f} s: raise "
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
            raise BenchFailed(answer["error"])
        return answer

    def _some_task_ended(self) -> bool:
        return any(process.poll() is not None for process in self._processes.values())

    def _check_alive(self) -> None:
        for name, process in self._processes.items():
            code = process.poll()
            if code is not None:
                raise BenchFailed(f"task {name} died with exit code {code}: the end of its log follows{self._tail(name)}")

    def _log_path(self, name: str) -> str:
        return os.path.join(self._logs, f"{name}.log")

    def _tail(self, name: str) -> str:
        with open(self._log_path(name), errors="replace") as log:
            lines = log.read().splitlines()[-_LOG_LINES:]
        return "".join(f"\n  {name}: {line}" for line in lines)

    def close(self) -> None:
        """Ends all tasks and removes the hosts and the logs."""
        for process in self._processes.values():
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    if stream is not None:
                        stream.close()
        deadline_s = time.monotonic() + 3
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline_s - time.monotonic()))
        self._processes.clear()
        self.hosts.close()
        shutil.rmtree(self._logs, ignore_errors=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
