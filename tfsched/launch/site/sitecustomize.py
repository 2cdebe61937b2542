"""Python imports this before a program of `tfsched run`, and before the Python programs which that one starts."""

from __future__ import annotations

import importlib
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _leave_no_trace() -> None:
    """The program sees the sys.path that it would have by itself, and its own sitecustomize is imported as well."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    own = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError:
        sys.modules["sitecustomize"] = own


def _begin() -> None:
    root = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
    sys.path.append(root)  # where tfsched is a working tree that is not installed
    try:
        launched = importlib.import_module("tfsched.launch.launched")
    except ImportError:
        return  # of another Python, which has no tfsched
    finally:
        sys.path.remove(root)
    launched.begin()


_leave_no_trace()
_begin()
