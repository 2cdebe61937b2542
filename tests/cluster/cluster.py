"""Starts, breaks, watches and ends clusters of task processes. Every wait in here is bounded."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from tfsched.bench.ports import free_ports

STOCK = "grpc"
TFSCHED = "grpc+tfsched"
START_S = 120  # importing TensorFlow takes seconds, on a busy machine many
CALL_S = 60
_LOG_LINES = 15
_HERE = pathlib.Path(__file__).resolve().parent
_ROOT = _HERE.parent.parent


class TaskError(Exception):
    """A scenario raised; ``kind`` is the exception's class, as its name."""

    def __init__(self, kind, message):
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


class TaskDied(Exception):
    """The process ended before it answered."""


def often(full, short):
    """How often a test repeats a fault: `short`, or `full` where TFSCHED_TEST_FULL is 1."""
    return full if os.environ.get("TFSCHED_TEST_FULL") == "1" else short


def wait_until(condition, limit_s, what):
    """Polls until ``condition()`` is true and returns its value; fails after ``limit_s`` with the last value seen."""
    deadline_s = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline_s, f"{what}: not within {limit_s} s"
        time.sleep(0.02)


def trained_while(cluster, act, times, steps, limit_s=100):
    """Trains, "steps" at a time, until it has acted "times" times while steps ran; returns what the steps gave."""
    deadline_s = time.monotonic() + limit_s
    gave, done = [], 0
    while done < times:
        assert time.monotonic() < deadline_s, f"acted {done} times while steps ran, not {times} times within {limit_s} s"
        running = cluster.submit("worker0", "common.run", count=steps)
        while not running.done():
            act()
            done += not running.done()
        gave += running.result()
    return gave


def cut_network(testbed, hosts, seconds=2.0, up=True, meanwhile=time.sleep):
    """Takes the hosts' links away for a while, or for good; everything that is on them then is lost.

    ``meanwhile`` is called with ``seconds`` while they are away.
    """
    for state in ("down", "up")[: 1 + up]:
        for host in hosts:
            command = ["ip", "-n", testbed.namespace(host), "link", "set", "eth0", state]
            subprocess.run(command, check=True, timeout=20)
        if state == "down":
            meanwhile(seconds)


def task_environment():
    """The environment of a task's process, but for what a test adds."""
    # A proxy would be asked for the peers; what a test does not set must not be set by whoever runs it.
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.lower().endswith("_proxy") and (not key.startswith("TFSCHED_") or key == "TFSCHED_LIBRARY")
    }
    paths = [str(_ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    kept.update(PYTHONPATH=os.pathsep.join(paths), CUDA_VISIBLE_DEVICES="", PYTHONWARNINGS="ignore")
    return {**kept, "TF_CPP_MIN_LOG_LEVEL": "1"}


class Pending:
    """A scenario that was asked for."""

    def __init__(self, process, number, scenario):
        self._process, self._number, self._scenario = process, number, scenario

    def done(self):
        """Whether the answer has come."""
        return self._number in self._process.answers

    def result(self, limit_s=CALL_S):
        """The scenario's result.

        Raises:
          TaskError: it raised.
          TaskDied: its process ended.
          TimeoutError: neither happened within ``limit_s``.
        """
        with self._process.changed:
            arrived = self._process.changed.wait_for(lambda: self.done() or self._process.ended, limit_s)
        if self.done():
            answer = self._process.answers.pop(self._number)
            if "error" in answer:
                raise TaskError(answer["error"], answer["message"])
            return answer["result"]
        doing = f"{self._process.name} doing {self._scenario}"
        if arrived:
            raise TaskDied(f"{doing} ended{self._process.tail()}")
        raise TimeoutError(f"{doing} did not answer within {limit_s} s{self._process.tail()}")


class _Process:
    """A task's process, in a group of its own."""

    def __init__(self, name, start, log_path):
        self.name, self.log_path = name, log_path
        self.answers, self.changed, self.ended = {}, threading.Condition(), False
        self._next, self._write = 0, threading.Lock()
        with open(log_path, "ab") as log:
            self.popen = start(log)
        threading.Thread(target=self._read, daemon=True).start()
        self.started = Pending(self, 0, "start")

    def _read(self):
        for line in self.popen.stdout:
            answer = json.loads(line)
            with self.changed:
                self.answers[answer["id"]] = answer
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def submit(self, scenario, arguments):
        with self._write:
            self._next += 1
            number = self._next
            request = {"id": number, "scenario": scenario, "arguments": arguments}
            with contextlib.suppress(OSError):  # it died: result() says so
                self.popen.stdin.write(json.dumps(request).encode() + b"\n")
                self.popen.stdin.flush()
        return Pending(self, number, scenario)

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):  # it may end between the two
            if self.popen.poll() is None:
                os.killpg(self.popen.pid, number)

    def end(self):
        self.signal(signal.SIGKILL)  # reaches stopped processes too
        self.popen.wait(20)
        with contextlib.suppress(OSError):
            self.popen.stdin.close()

    def tail(self):
        with open(self.log_path, errors="replace") as log:
            lines = log.read().splitlines()[-_LOG_LINES:]
        return "".join(f"\n  {self.name}: {line}" for line in lines)


# They change when tasks hear of a step's end, which is after its client does.
STEP_COUNTERS = ("steps", "step_us_total")


def but_steps(stats):
    """The counters that are settled when nothing is under way."""
    return {key: value for key, value in stats.items() if key not in STEP_COUNTERS}


class Cluster:
    """A running cluster; a context manager. Tasks are called "ps0", "worker1" and so on.

    Args:
      ps, workers: how many.
      protocol: of every task that ``protocols`` (name -> protocol) does not name.
      environment: name -> what its environment has besides this process's.
      load: names of stock tasks whose processes load tfsched all the same.
      nursery: where tasks are forked; None starts each as a program of its own.
      coordinator: also start "chief0", which hosts no server until a scenario joins the cluster with TensorFlow 2.
      mirrored: no task hosts a server until a scenario makes its MultiWorkerMirroredStrategy.
      testbed: hosts named as the tasks are, on which they run; None for this machine.
    """

    def __init__(
        self,
        ps=1,
        workers=1,
        protocol=TFSCHED,
        protocols=None,
        environment=None,
        load=(),
        nursery=None,
        testbed=None,
        coordinator=False,
        mirrored=False,
    ):
        self.names = [f"ps{i}" for i in range(ps)] + [f"worker{i}" for i in range(workers)] + ["chief0"] * coordinator
        self._protocols = {name: (protocols or {}).get(name, protocol) for name in self.names}
        self._environment = environment or {}
        self._load, self._mirrored = load, mirrored
        self._nursery, self._testbed = nursery, testbed
        self._processes = {}
        self._directory = tempfile.mkdtemp(prefix="tfsched-cluster-")
        ports = free_ports(len(self.names))
        self._addresses = {"ps": [], "worker": [], **({"chief": []} if coordinator else {})}
        for name, port in zip(self.names, ports, strict=True):
            host = testbed.address(name) if testbed else "127.0.0.1"
            self._addresses[name.rstrip("0123456789")].append(f"{host}:{port}")

    def __enter__(self):
        try:
            for name in self.names:
                self._launch(name)
            for name in self.names:
                self._processes[name].started.result(START_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends all tasks and removes their logs."""
        for process in self._processes.values():
            process.end()
        self._processes.clear()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _launch(self, name):
        job = name.rstrip("0123456789")
        spec = {
            "cluster": self._addresses,
            "job": job,
            "index": int(name[len(job) :]),
            "protocol": self._protocols[name],
            "load": name in self._load,
            "mirrored": self._mirrored,
        }
        environment = {**task_environment(), **self._environment.get(name, {})}

        def start(log):
            if self._nursery is not None:
                namespace = self._testbed.namespace(name) if self._testbed else None
                return self._nursery.fork(spec, environment, log, namespace)
            command = [sys.executable, str(_HERE / "task.py"), json.dumps(spec)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log, "env": environment}
            if self._testbed is not None:
                return self._testbed.exec(name, command, **pipes)
            return subprocess.Popen(command, start_new_session=True, **pipes)

        self._processes[name] = _Process(name, start, os.path.join(self._directory, name + ".log"))

    def submit(self, name, scenario, /, **arguments):
        """Asks a task for a scenario; returns at once."""
        return self._processes[name].submit(scenario, arguments)

    def call(self, name, scenario, /, limit_s=CALL_S, **arguments):
        """As :meth:`submit`, and waits for the result."""
        return self.submit(name, scenario, **arguments).result(limit_s)

    def kill(self, name):
        """SIGKILL; the process is gone on return."""
        self._processes[name].end()

    def leave(self, name, limit_s=CALL_S):
        """Lets a task end as a program does whose last line is reached; its exit code.

        Raises:
          subprocess.TimeoutExpired: it still runs after ``limit_s``.
        """
        process = self._processes[name]
        process.submit("leave", {})
        code = process.popen.wait(limit_s)
        process.end()
        return code

    def restart(self, name, protocol=None):
        """Starts a task that has ended again, on its old port; with another protocol than before, if one is given."""
        self._protocols[name] = protocol or self._protocols[name]
        self._launch(name)
        self._processes[name].started.result(START_S)

    def stop(self, name):
        """SIGSTOP; see :meth:`resume`."""
        self._processes[name].signal(signal.SIGSTOP)

    def resume(self, name):
        """SIGCONT."""
        self._processes[name].signal(signal.SIGCONT)

    def protocol_of(self, name):
        """What the task's server speaks."""
        return self._protocols[name]

    def target(self, name):
        """The task's master, for sessions from elsewhere."""
        job = name.rstrip("0123456789")
        return "grpc://" + self._addresses[job][int(name[len(job) :])]

    def addresses(self):
        """Job -> its tasks' addresses."""
        return {job: list(addresses) for job, addresses in self._addresses.items() if addresses}

    def alive(self, name):
        """Whether the process runs."""
        return self._processes[name].popen.poll() is None

    def pid(self, name):
        """The process (and process group) of a task."""
        return self._processes[name].popen.pid

    def log(self, name):
        """What the task has printed so far."""
        return pathlib.Path(self._processes[name].log_path).read_text(errors="replace")

    def stats(self, name):
        """The counters of a task's scheduler, read in its own process: works while the cluster hangs."""
        return self.call(name, "common.stats")

    def settled(self, name, limit_s=30):
        """Its counters once no background call is left: a read waits for an update of its variable, not for the call."""
        last = {}

        def ended():
            last.update(self.stats(name))
            return last["background_outstanding"] == 0

        wait_until(ended, limit_s, f"no background call in {name}")
        return last

    def wait_queued(self, name, limit_s=30):
        """Waits until transfers are queued in a task, so that a step is certainly under way."""
        return wait_until(lambda: self.stats(name)["queue_depth"] > 0, limit_s, f"a queue in {name}")

    def wait_idle(self, name, limit_s=30):
        """Waits until nothing is queued or on the wire and no step has state left; returns the counters."""

        def idle():
            stats = self.stats(name)
            seen.append(stats)
            return stats if not (stats["queue_depth"] or stats["on_wire_bytes"] or stats["groups"]) else None

        seen = []
        try:
            return wait_until(idle, limit_s, f"an idle scheduler in {name}")
        except AssertionError as error:
            raise AssertionError(f"{error}; last seen: {seen[-1]}") from None
