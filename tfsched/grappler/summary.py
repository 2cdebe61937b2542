"""What tfsched did in this process, in one line: logged at the process's end."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from typing import Any

from tfsched._log import log
from tfsched._options import FLAGS
from tfsched.grappler.bridge import PassStats, pass_stats
from tfsched.ops import control

_LOCK = threading.Lock()
# Process ids in which the end is awaited: a forked child has its own.
_AWAITED: set[int] = set()
_SHOWN = 1000


def at_exit() -> None:
    """Has the end of this process log the line, once."""
    with _LOCK:
        if os.getpid() not in _AWAITED:
            _AWAITED.add(os.getpid())
            atexit.register(_say, os.getpid())


def _say(pid: int) -> None:
    if pid == os.getpid():  # not what a forked child has inherited
        say()


def say() -> None:
    """Logs the line; where tfsched had nothing to do, only in a program that `tfsched run` has begun."""
    try:
        seen, sent = pass_stats(), control.stats()
        active = seen.graphs or sent["tasks"] or sent["all_reduces"] or FLAGS in os.environ
        log.log(logging.INFO if active else logging.DEBUG, "summary: %s.", text(seen, sent))
    except Exception as error:  # the process ends: nobody could do anything about it
        log.debug("there is no summary: %s", error)


def text(seen: PassStats, sent: dict[str, Any]) -> str:
    """How many transfers were ordered, cut, crossing and left alone, and why; how many bytes the scheduler has sent.

    Args:
      seen: what the pass did.
      sent: the scheduler's counters.
    """
    parts = []
    if seen.largest:
        parts.append(seen.largest[:_SHOWN])
    elif seen.graphs:
        parts.append(f"none of {seen.graphs} graphs has a transfer to another task")
    else:
        parts.append("no graph was planned in this process")
    parts.append(f"{sent['tasks']:,} ordered transfers ({_megabytes(sent['bytes'])}) left this process")
    if sent["bypassed_tasks"]:
        parts.append(f"{sent['bypassed_tasks']:,} others ({_megabytes(sent['bypassed_bytes'])}) left as in stock TensorFlow")
    if sent["all_reduces"]:
        parts.append(f"{sent['all_reduces']:,} tensors were all-reduced")
    if seen.errors:
        parts.append(f"{seen.errors} graphs were left as they were because of errors, the last: {seen.last_error[:_SHOWN]}")
    return "; ".join(parts)


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 1e5 else f"{size_bytes:,} bytes"
