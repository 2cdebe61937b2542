"""Imports TensorFlow without its start-up messages, which no log level turns off (2.21)."""

from __future__ import annotations

import os
import sys


def import_tensorflow() -> None:
    """Imports TensorFlow with the process's stderr closed to it. The import's own errors still come out as exceptions."""
    if "tensorflow" in sys.modules:
        return
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        import tensorflow  # noqa: F401
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
