"""Makes sessions that cross the barrier finish their updates when they are closed."""

from __future__ import annotations

import functools
from typing import Any

from tensorflow.python.client import session as session_lib

from tfsched._log import log
from tfsched.ops import library

_TIMEOUT_S = 30.0
# Where a session keeps the one that drains it (tfsched.drain).
DRAINER = "_tfsched_drainer"


def crosses(config: Any) -> bool:
    """Whether sessions of this ConfigProto cross the barrier."""
    if config is None:
        return False
    for one in config.graph_options.rewrite_options.custom_optimizers:
        if one.name == "tfsched" and "barrier" in one.parameter_map:
            return not one.parameter_map["barrier"].b
    return False


@functools.lru_cache(maxsize=1)
def drain_at_close() -> None:
    """Makes every later ``Session.close()`` in this process drain first, where its session crosses the barrier.

    An update lives on without its session, but who closes one expects that its work is done. Updates that run in other
    processes need nothing of this one and are not waited for.
    """
    close = session_lib.BaseSession.close

    @functools.wraps(close)
    def drain_and_close(self: Any) -> None:
        if crosses(getattr(self, "_config", None)):
            drainer = self.__dict__.pop(DRAINER, None)
            if drainer is not None:
                close(drainer)
            left = library.c_api().tfsched_drain(int(_TIMEOUT_S * 1000))
            if left:
                log.warning(
                    "a session closes with %d steps' updates outstanding after %g s; they go on without it.",
                    left,
                    _TIMEOUT_S,
                )
        close(self)

    session_lib.BaseSession.close = drain_and_close
