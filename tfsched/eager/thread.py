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
      own: the calls are tfsched's own.
      closure: what of a coordinator's closure runs here (confirming.py).
      resource: a coordinator makes a worker's resource here, a dataset's iterator say.
    """

    def __init__(self) -> None:
        self.scopes: list[Setting] = []
        self.own = False
        self.closure: Any = None
        self.resource = False


class _Blocks:
    """How many blocks, on any thread, make calls differ from stock TensorFlow's: for those who cannot ask every thread."""

    def __init__(self) -> None:
        self.open = 0
        self.lock = threading.RLock()  # a finalizer may open one, wherever its thread is


current = _Thread()
blocks = _Blocks()


@contextmanager
def looked_at() -> Iterator[None]:
    """Within it, ``blocks`` tells that calls may not be stock TensorFlow's."""
    with blocks.lock:
        blocks.open += 1
    try:
        yield
    finally:
        with blocks.lock:
            blocks.open -= 1


@contextmanager
def unscheduled() -> Iterator[None]:
    """Within it, this thread's calls go to TensorFlow as they are, and wait for nothing."""
    before, current.own = current.own, True
    try:
        with looked_at():
            yield
    finally:
        current.own = before
