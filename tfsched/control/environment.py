"""What the environment asks of a process that has a tfsched server or calls tfsched.enable(): a view, warnings."""

from __future__ import annotations

import math
import os
import threading

from tfsched._log import log
from tfsched.control import access, stalls
from tfsched.control.serving import ControlServer, serve_control
from tfsched.errors import TfschedError

PORT, HOST, METRICS_PORT = "TFSCHED_CONTROL_PORT", "TFSCHED_CONTROL_HOST", "TFSCHED_METRICS_PORT"

_LOCK = threading.Lock()
# Process id -> what was started there: a forked child starts its own.
_BEGUN: dict[int, ControlServer | None] = {}


def begin() -> None:
    """Starts what the environment asks for, once a process.

    A mistake in it is one warning: a view must not end a training.
    """
    with _LOCK:
        if os.getpid() in _BEGUN:
            return
        _BEGUN[os.getpid()] = None
        try:
            _BEGUN[os.getpid()] = _serve()
        except TfschedError as error:
            log.warning("nothing is served: %s", error)
        try:
            stalls.begin(stall_seconds())
        except TfschedError as error:
            log.warning("%s", error)


def _serve() -> ControlServer | None:
    port, metrics_port = _port(PORT), _port(METRICS_PORT)
    if port is None and metrics_port is None:
        return None
    host = os.environ.get(HOST) or "127.0.0.1"
    served = serve_control(port, host, os.environ.get(access.TOKEN) or None, metrics_port)
    # As a warning, for that is what is shown by default, and nobody could find a free port without it.
    if served.address is not None:
        log.warning("control service at %s.", served.address)
    if served.metrics_url is not None:
        log.warning("metrics at %s.", served.metrics_url)
    return served


def _port(variable: str) -> int | None:
    text = os.environ.get(variable, "").strip()
    if not text:
        return None
    if not text.isdecimal() or int(text) >= 1 << 16:
        raise TfschedError(f"{variable} is {text!r}; give a port from 0 (a free one) to 65535, or leave it out.")
    return int(text)


def stall_seconds() -> float:
    """TFSCHED_STALL_SECONDS, or its default; 0: no warnings.

    Raises:
      TfschedError: it is no number from 0 on.
    """
    text = os.environ.get(stalls.VARIABLE, "").strip()
    try:
        seconds = float(text) if text else stalls.DEFAULT_S
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise TfschedError(f"{stalls.VARIABLE} is {text!r}; give seconds from 0 (no warnings) on.")
    return seconds
