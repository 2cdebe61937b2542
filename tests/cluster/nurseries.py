"""Starts tasks by forking them in a nursery (nursery.py): a cluster's task is there, or there again, within a moment."""

import json
import os
import pathlib
import select
import socket
import subprocess
import sys
import threading

from .cluster import STOCK

# Read when TensorFlow is imported. What a sum adds up in which order must depend on nothing: oneDNN chooses by the number
# of idle threads.
IMPORTED = {"TF_ENABLE_ONEDNN_OPTS": "0"}
_START_S = 120  # importing TensorFlow takes seconds, on a busy machine many
_FORK_S = 20
_HERE = pathlib.Path(__file__).resolve().parent


class Forked:
    """A forked task, with what of subprocess.Popen a cluster uses: the process is not a child of this one."""

    def __init__(self, pid, stdin, stdout, status):
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode = None
        self._status = status

    def poll(self):
        """The exit code, negative for a signal; None while it runs."""
        return self._read(0)

    def wait(self, timeout):
        """As :meth:`poll`, when it has ended; subprocess.TimeoutExpired if it has not within ``timeout`` seconds."""
        if self._read(timeout) is None:
            raise subprocess.TimeoutExpired(f"forked task {self.pid}", timeout)
        return self.returncode

    def _read(self, timeout_s):
        if self.returncode is None and select.select([self._status], [], [], timeout_s)[0]:
            # Nothing: the nursery has ended, and its tasks with it.
            self.returncode = int(os.read(self._status, 16) or -9)
            os.close(self._status)
        return self.returncode


class Nursery:
    """A process that forks tasks; a context manager, whose end is that of all its tasks.

    Args:
      environment: the nursery's own: what TensorFlow reads when it is imported is read there, once for all tasks.
      stock: forks tasks without the library, which do not even import tfsched.
    """

    def __init__(self, environment, stock=False):
        self._environment = {**environment, **IMPORTED}
        self._arguments = ["stock"] if stock else []
        self._asking = threading.Lock()  # an answer is for who asked last

    def __enter__(self):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(_HERE / "nursery.py"), str(theirs.fileno()), *self._arguments],
                stdin=subprocess.DEVNULL,
                # OpenBLAS would start its threads when it is imported, and no TensorFlow needs them.
                env={**self._environment, "OPENBLAS_NUM_THREADS": "1"},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        try:
            self._answer(_START_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._socket.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)

    @property
    def pid(self):
        """The nursery."""
        return self._process.pid

    def fork(self, spec, environment, log, namespace=None):
        """Starts a task, in a network namespace of that name if one is given; ``log`` is the file that it prints to."""
        to_task, task_reads = _pipe_to()
        from_task, task_writes = _pipe_from()
        status, nursery_writes = os.pipe()
        theirs = [task_reads, task_writes, log.fileno(), nursery_writes]
        request = json.dumps({"spec": spec, "environment": environment, "namespace": namespace}).encode()
        late = {key for key, value in IMPORTED.items() if environment.get(key, value) != value}
        assert not late, f"{late} would come too late for a task that is forked"
        with self._asking:
            socket.send_fds(self._socket, [request], theirs)
            for descriptor in (task_reads, task_writes, nursery_writes):
                os.close(descriptor)
            answer = self._answer(_FORK_S)
        assert answer["threads"] == 1, f"the nursery has {answer['threads']} threads, so that it cannot fork"
        return Forked(answer["pid"], to_task, from_task, status)

    def _answer(self, limit_s):
        assert select.select([self._socket], [], [], limit_s)[0], f"the nursery did not answer within {limit_s} s"
        data = self._socket.recv(1 << 16)
        assert data, "the nursery has ended"
        return json.loads(data)


class Nurseries:
    """One nursery for stock tasks and one for the others, each started when its first task is; a context manager."""

    def __init__(self, environment):
        self._environment, self._started, self._starting = environment, {}, threading.Lock()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for nursery in self._started.values():
            nursery.__exit__()

    def fork(self, spec, environment, log, namespace=None):
        """As :meth:`Nursery.fork`."""
        stock = spec["protocol"] == STOCK and not spec["load"]
        with self._starting:
            if stock not in self._started:
                self._started[stock] = Nursery(self._environment, stock).__enter__()
        return self._started[stock].fork(spec, environment, log, namespace)


def _pipe_to():
    reads, writes = os.pipe()
    return os.fdopen(writes, "wb"), reads


def _pipe_from():
    reads, writes = os.pipe()
    return os.fdopen(reads, "rb"), writes
