"""How much of the time this process computes nothing: looks at its clocks every so often, where somebody may ask."""

from __future__ import annotations

import atexit
import os
import threading
import time
from typing import NamedTuple

# A pause that is shorter is not seen as one. A look takes some microseconds.
_PERIOD_S = 0.01
_END_S = 2


class Seen(NamedTuple):
    """``seconds`` that were watched; of them ``idle_s``, in which the process used no processor.

    Between two looks a process that uses one processor or more is busy all the time, one that uses half of one is idle for
    half of it. What it computes for others, reading data and sending, counts as well.
    """

    seconds: float = 0.0
    idle_s: float = 0.0


class Watch:
    """Looks every so often, on a thread of its own, until it is closed."""

    def __init__(self, period_s: float = _PERIOD_S):
        self.seen = Seen()
        self._period_s = period_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfsched-idle", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        wall_s, used_s = time.monotonic(), time.process_time()
        while not self._end.wait(self._period_s):
            wall_before_s, used_before_s = wall_s, used_s
            wall_s, used_s = time.monotonic(), time.process_time()
            passed_s = wall_s - wall_before_s
            idle_s = max(0.0, passed_s - (used_s - used_before_s))
            self.seen = Seen(self.seen.seconds + passed_s, self.seen.idle_s + idle_s)

    def close(self) -> None:
        """Ends it."""
        self._end.set()
        self._thread.join(_END_S)


_LOCK = threading.Lock()
# Process id -> its watch: a forked child has no thread of its parent.
_WATCHES: dict[int, Watch] = {}


def begin() -> None:
    """Watches this process from now on; once."""
    with _LOCK:
        if os.getpid() not in _WATCHES:
            watch = _WATCHES[os.getpid()] = Watch()
            atexit.register(watch.close)


def seen() -> Seen:
    """What was seen so far; nothing where nobody watches."""
    watch = _WATCHES.get(os.getpid())
    return watch.seen if watch is not None else Seen()
