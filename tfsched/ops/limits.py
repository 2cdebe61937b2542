"""Asks several tasks at once, under one time limit: TensorFlow's calls have none, or each has its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

Tell = Callable[[Any], None]


def ask_all(asks: Mapping[str, Callable[[Tell], None]], deadline_s: float) -> dict[str, Any]:
    """Calls all of them at once, each on a thread of its own.

    Args:
      asks: name -> what asks, and calls its argument with the answer as soon as it has one. To close a session may take
        longer than to get its answer.
      deadline_s: until when to wait, of ``time.monotonic()``. Who has not ended by then is left to itself.

    Returns:
      Name -> the answer, or the exception that took its place. Who has not answered by then is missing.
    """
    told: dict[str, Any] = {}

    def one(name: str, ask: Callable[[Tell], None]) -> None:
        try:
            ask(lambda answer: told.setdefault(name, answer))
        except Exception as error:
            told.setdefault(name, error)

    # Nobody waits for these threads at the program's end: a session with a task that is gone may take minutes to close.
    threads = [threading.Thread(target=one, args=item, name="tfsched-ask", daemon=True) for item in asks.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
    return told.copy()
