"""Runs one process for each task of a local cluster, and ends all of them when one fails or the job is done."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfsched.launch.cluster import PS, Task
from tfsched.launch.launched import LAUNCHER, TELL_FD
from tfsched.launch.output import Output, Relay

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_S = 0.1
_CLOSED = 128 + signal.SIGPIPE


class Job:
    """The processes of a cluster.

    Args:
      command: what every task runs.
      environments: task -> its environment.
      grace_s: how long processes have to end when they are asked to, in seconds; then they are killed.
    """

    def __init__(self, command: Sequence[str], environments: Mapping[Task, Mapping[str, str]], grace_s: float) -> None:
        self._command, self._environments, self._grace_s = command, environments, grace_s
        self._processes: dict[Task, subprocess.Popen[bytes]] = {}
        self._relays: list[Relay] = []
        # (task, exit code) in the order of the ends; (task, None): it serves; (None, code): end everything with that code.
        self._events: queue.SimpleQueue[tuple[Task | None, int | None]] = queue.SimpleQueue()
        # A parameter server is never waited for; others may say that they only serve.
        self._serving = {task for task in environments if task.job == PS}
        # Processes are reaped at the end only: until then their process groups' numbers are nobody else's.
        self._codes: dict[Task, int] = {}
        self._signalled: list[int] = []
        self._kill = threading.Event()

    def run(self) -> int:
        """Runs the job to its end.

        Returns:
          0 if all tasks that do not only serve have ended well; else the exit code of the first that failed, where 128 + n
          stands for signal n, of the task or of this process.

        Raises:
          BrokenPipeError: nobody reads the output any more.
        """
        with self._signals():
            try:
                self._start()
                code = self._wait()
            finally:
                self._end()
        if code == _CLOSED:
            raise BrokenPipeError
        return code

    def _start(self) -> None:
        out = Output(sys.stdout.buffer, lambda: self._events.put((None, _CLOSED)))
        err = Output(sys.stderr.buffer, lambda: self._events.put((None, _CLOSED)))
        told: dict[Task, int] = {}
        for task, environment in self._environments.items():
            reading, writing = os.pipe()
            try:
                process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**environment, LAUNCHER: str(os.getpid()), TELL_FD: str(writing)},
                    pass_fds=[writing],
                    start_new_session=True,  # a process group of its own, with all that it starts
                )
            finally:
                os.close(writing)
            self._processes[task], told[task] = process, reading
        for task, process in self._processes.items():
            assert process.stdout is not None and process.stderr is not None
            prefix = f"[{task.name}] "
            self._relays += [Relay(process.stdout, prefix, out), Relay(process.stderr, prefix, err)]
            threading.Thread(target=self._watch, args=(task, process), daemon=True).start()
            threading.Thread(target=self._listen, args=(task, told[task]), daemon=True).start()

    def _watch(self, task: Task, process: subprocess.Popen[bytes]) -> None:
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        self._codes[task] = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        self._events.put((task, self._codes[task]))

    def _listen(self, task: Task, reading: int) -> None:
        with os.fdopen(reading, "rb") as pipe:
            if pipe.readline():
                self._events.put((task, None))

    def _wait(self) -> int:
        running, ended = set(self._processes), False
        while not (ended and running <= self._serving):
            if not running:
                return 0
            try:
                task, code = self._events.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            if task is None:
                return code or 0
            if code is None:
                self._serving.add(task)
            elif code != 0:
                return self._failed(task, code, len(running) > 1)
            else:
                running.discard(task)
                ended = ended or task not in self._serving
        return 0

    def _failed(self, task: Task, code: int, others: bool) -> int:
        how = f"was ended by signal {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"
        self._say(f"{task.name} {how}{'; all other tasks are ended' if others else ''}.")
        return 128 - code if code < 0 else code

    @staticmethod
    def _say(sentence: str) -> None:
        with contextlib.suppress(OSError):
            print(f"tfsched: {sentence}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Within it, signals go on to all tasks, and end the job; a second one kills them."""

        def pass_on(number: int, frame: Any) -> None:
            if self._signalled:
                self._kill.set()
                return
            self._signalled.append(number)
            for task, process in self._processes.items():
                # Who serves is blocked in TensorFlow, where Python does not hear of SIGINT.
                _signal(process, signal.SIGTERM if task in self._serving else signal.Signals(number))
            self._events.put((None, 128 + number))

        before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end(self) -> None:
        """Ends whatever still runs, with all that it has started."""
        for task in self._left():
            if not self._signalled:  # else it has been asked already, in the way of whoever asked us
                _signal(self._processes[task], signal.SIGTERM)
        begin_s = time.monotonic()
        while left := self._left():
            waited_s = time.monotonic() - begin_s
            if waited_s > self._grace_s or self._kill.is_set():
                names = ", ".join(task.name for task in left)
                self._say(f"{names} did not end within {waited_s:.1f} s and {'is' if len(left) == 1 else 'are'} killed.")
                break
            time.sleep(_LOOK_S / 4)
        for process in self._processes.values():
            _signal(process, signal.SIGKILL)  # the group: children may outlive their parents
        for process in self._processes.values():
            process.wait()
        for relay in self._relays:
            relay.finish()

    def _left(self) -> list[Task]:
        return [task for task in self._processes if task not in self._codes]


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """To a process's group. A group lives as long as one of its processes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
