"""What tfsched knows of the calling thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tfsched.eager.config import Setting


class _Thread(threading.local):
    """Attributes of one thread.

    Attributes:
      scopes: the settings of the blocks around, innermost last.
      call: the setting of the call under way.
      own: the calls are tfsched's own.
      closure: what of a coordinator's closure runs here (confirming.py).
    """

    def __init__(self) -> None:
        self.scopes: list[Setting] = []
        self.call: Setting | None = None
        self.own = False
        self.closure: Any = None


current = _Thread()


@contextmanager
def unscheduled() -> Iterator[None]:
    """Within it, this thread's calls go to TensorFlow as they are, and wait for nothing."""
    before, current.own = current.own, True
    try:
        yield
    finally:
        current.own = before
