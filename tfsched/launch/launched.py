"""What happens in a program of `tfsched run` before its first line: it is bound to its launcher and awaits TensorFlow."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

# The launcher's process id, for the process that it starts and for no child of that one.
LAUNCHER = "TFSCHED_LAUNCHER_PID"
# The file descriptor at which a task tells its launcher that it does nothing but serve.
TELL_FD = "TFSCHED_LAUNCHER_FD"
_PR_SET_PDEATHSIG = 1


def begin() -> None:
    """Called once a process, before the program."""
    _end_with_launcher()
    # Not for the program's children: the number may mean something else there.
    told = os.environ.pop(TELL_FD, "")
    try:
        import wrapt
    except ImportError:
        return  # it is part of every TensorFlow
    # TensorFlow is left to the program: what it sets before its own import must hold.
    tell_fd = int(told) if told else None
    wrapt.register_post_import_hook(lambda module: _switch_on(tell_fd), "tensorflow")


def _end_with_launcher() -> None:
    launcher = os.environ.pop(LAUNCHER, "")
    if not launcher:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(launcher):  # it has gone before that was said
        os._exit(1)


def _switch_on(tell_fd: int | None) -> None:
    """Called when the program has imported TensorFlow. Whatever goes wrong, the program runs."""
    try:
        from tfsched._log import log
        from tfsched.launch import patches
    except Exception as error:
        print(f"tfsched: this program runs as with stock TensorFlow: {_sentence(error)}", file=sys.stderr)
        return
    try:
        patches.tell_of_serving(tell_fd)
        patches.apply()
    except Exception as error:
        patches.undo()
        log.warning("this program runs as with stock TensorFlow: %s", _sentence(error))


def _sentence(error: Exception) -> str:
    text = (str(error).strip().splitlines() or [""])[0]
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"
