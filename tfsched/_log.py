"""The one logger of tfsched, `tfsched`, and its level: TFSCHED_LOG_LEVEL."""

from __future__ import annotations

import logging
import os
import sys

VARIABLE = "TFSCHED_LOG_LEVEL"
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
DEFAULT = "info"

log = logging.getLogger("tfsched")
_SAID: set[str] = set()


class _Fallback(logging.Handler):
    """Prints to stderr where the program has set up no logging of its own; else the program's handlers print."""

    def emit(self, record: logging.LogRecord) -> None:
        """As of any handler. The stderr is that of this moment, for a program may exchange it."""
        if logging.getLogger().handlers or sys.stderr is None:
            return
        try:
            print(f"tfsched {record.levelname}: {self.format(record)}", file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


def say_once(text: str, level: int = logging.WARNING) -> None:
    """Logs a sentence once a process."""
    if text not in _SAID:
        _SAID.add(text)
        log.log(level, "%s", text)


def _begin() -> None:
    text = os.environ.get(VARIABLE, "").strip()
    log.setLevel(LEVELS.get(text.lower(), LEVELS[DEFAULT]))
    if not log.handlers:
        log.addHandler(_Fallback())
    if text and text.lower() not in LEVELS:
        log.warning("%s is %r, and %s is used; choose one of %s.", VARIABLE, text, DEFAULT, ", ".join(LEVELS))


_begin()
