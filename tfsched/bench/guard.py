"""A process beside a task that ends it when nobody can send it requests any more."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

_GRACE_S = 5.0
_LOOK_MS = 500
_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Ends this process, and what it has started, when its parent is gone or its stdin hangs up, even while it hangs.

    Another process does it, for a thread of this one would wait for ever behind a call that keeps the interpreter's lock.
    Call it before anything starts threads.
    """
    task, parent = os.getpid(), os.getppid()
    if os.fork():
        return
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a task that has ended leaves nothing behind
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # these are for the task, which may take its time
            signal.signal(number, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_WRONLY)
        for fd in (1, 2):  # or who reads them would wait for this process too
            os.dup2(nothing, fd)
        _watch(task, parent)
        if os.getppid() == task:
            with contextlib.suppress(OSError):
                _kill(task)
    finally:
        os._exit(0)


def _watch(task: int, parent: int) -> None:
    """Until the task is gone, or nobody needs it."""
    requests = select.poll()
    requests.register(0, select.POLLRDHUP)  # a hang-up is always told, of a socket in this way
    while os.getppid() == task and _is_there(parent):
        if requests.poll(_LOOK_MS):
            # The end of the requests is an orderly end, if none is under way.
            deadline_s = time.monotonic() + _GRACE_S
            while os.getppid() == task and time.monotonic() < deadline_s:
                time.sleep(_LOOK_MS / 1e3)
            return


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # another user's
    except OSError:
        return False
    return True


def _kill(task: int) -> None:
    if os.getpgid(task) == task:
        os.killpg(task, signal.SIGKILL)  # with what it has started, and with this process
    os.kill(task, signal.SIGKILL)
