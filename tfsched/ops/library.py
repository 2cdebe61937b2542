"""Loads the native library once, after making sure that it fits the TensorFlow in this process."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import threading
from typing import Any

from tfsched.errors import TfschedError
from tfsched.ops import drain

_NAME = "libtfsched.so"
_DIRECTORY = pathlib.Path(__file__).resolve().parent
_RELEASES = _DIRECTORY / "native"  # of a wheel: a directory for each TensorFlow release
_LOCK = threading.Lock()
_STATE: dict[str, Any] = {}

REBUILD = (
    "run 'pip install --no-build-isolation --force-reinstall --no-deps <tfsched's source tree or tfsched-*.tar.gz>' in this "
    "environment"
)


def library_path() -> pathlib.Path:
    """Where the library is: at TFSCHED_LIBRARY, next to this file, or in a wheel's directory for this TensorFlow."""
    override = os.environ.get("TFSCHED_LIBRARY")
    if override:
        return pathlib.Path(override)
    built_here = _DIRECTORY / _NAME
    if built_here.exists() or not _RELEASES.is_dir():
        return built_here
    import tensorflow as tf

    return _RELEASES / tf.__version__ / _NAME


def build_info(path: pathlib.Path) -> dict[str, Any]:
    """What the library at ``path`` was built for: {"tensorflow": version, ...}; {} where nothing was recorded."""
    try:
        return dict(json.loads(path.with_suffix(".json").read_text()))
    except (OSError, ValueError):
        return {}


def check(path: pathlib.Path, tensorflow_version: str) -> None:
    """Raises TfschedError if the library at ``path`` is missing or was built for another TensorFlow."""
    if not path.exists() and path.parent.parent == _RELEASES:
        releases = sorted(
            (one.name for one in _RELEASES.iterdir()), key=lambda name: [int(part) for part in name.split(".")]
        )
        raise TfschedError(
            f"tfsched's wheel has no native library for TensorFlow {tensorflow_version}, only for {', '.join(releases)}; "
            f"install one of them, or to build one {REBUILD}."
        )
    if not path.exists():
        raise TfschedError(f"tfsched's native library is not at {path}; {REBUILD}.")
    built_for = build_info(path).get("tensorflow")
    if built_for is not None and built_for != tensorflow_version:
        raise TfschedError(
            f"tfsched's native library {path} was built for TensorFlow {built_for}, but this is TensorFlow "
            f"{tensorflow_version}; {REBUILD}."
        )


def load() -> Any:
    """Loads the library; later calls return the same module of op wrappers.

    Raises:
      TfschedError: the library is missing, or was built for another TensorFlow.
    """
    with _LOCK:
        if "ops" not in _STATE:
            import tensorflow as tf

            path = library_path()
            check(path, tf.__version__)
            try:
                ops = tf.load_op_library(str(path))
            except (tf.errors.NotFoundError, tf.errors.OpError, OSError) as error:
                reason = str(error).splitlines()[0]
                raise TfschedError(
                    f"tfsched's native library {path} does not load into TensorFlow {tf.__version__} ({reason}); {REBUILD}."
                ) from None
            _STATE["c"] = _declare(ctypes.CDLL(str(path)))
            _STATE["ops"] = ops
            drain.at_exit(_STATE["c"])
        return _STATE["ops"]


def c_api() -> ctypes.CDLL:
    """The library's C functions (cc/grappler/bridge.h)."""
    load()
    return _STATE["c"]


PASS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
TAKE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    library.tfsched_set_pass.argtypes = [ctypes.c_void_p]
    library.tfsched_set_pass.restype = None
    library.tfsched_put.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    library.tfsched_put.restype = None
    library.tfsched_link_bps.argtypes = []
    library.tfsched_link_bps.restype = ctypes.c_int64
    library.tfsched_pace_bps.argtypes = []
    library.tfsched_pace_bps.restype = ctypes.c_int64
    library.tfsched_keep_graph.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    library.tfsched_keep_graph.restype = None
    library.tfsched_read.argtypes = [ctypes.c_int, TAKE, ctypes.c_void_p]
    library.tfsched_read.restype = None
    library.tfsched_clear_trace.argtypes = []
    library.tfsched_clear_trace.restype = None
    library.tfsched_drain.argtypes = [ctypes.c_int64]
    library.tfsched_drain.restype = ctypes.c_int64
    library.tfsched_limit_process.argtypes = [ctypes.c_int64, ctypes.c_char_p]
    library.tfsched_limit_process.restype = None
    library.tfsched_configure.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64]
    library.tfsched_configure.restype = ctypes.c_int
    library.tfsched_set_piece_bytes.argtypes = [ctypes.c_int64]
    library.tfsched_set_piece_bytes.restype = None
    library.tfsched_set_crossing_variables.argtypes = [ctypes.c_int64]
    library.tfsched_set_crossing_variables.restype = None
    return library
