"""Lets updates that run in the background end before their process does."""

from __future__ import annotations

import atexit
import ctypes
import os

from tfsched._log import log

VARIABLE = "TFSCHED_DRAIN_TIMEOUT_S"
_DEFAULT_S = 30.0


def timeout_s() -> float:
    """How long the end of the process may wait for background updates: TFSCHED_DRAIN_TIMEOUT_S, or 30 s."""
    text = os.environ.get(VARIABLE, "")
    try:
        seconds = float(text) if text else _DEFAULT_S
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 1e6:
        log.warning("%s=%s is not a number of seconds; %g is used instead.", VARIABLE, text, _DEFAULT_S)
        return _DEFAULT_S
    return seconds


def at_exit(api: ctypes.CDLL) -> None:
    """Registers the wait; once a process."""
    atexit.register(_drain, api)


def _drain(api: ctypes.CDLL) -> None:
    if not api.tfsched_drain(0):
        return
    limit_s = timeout_s()
    left = api.tfsched_drain(int(limit_s * 1000))
    if left:
        log.warning(
            "this process ends with %d background update(s) outstanding after %g s; they may be lost. "
            "Drain before the end, or set %s.",
            left,
            limit_s,
            VARIABLE,
        )
