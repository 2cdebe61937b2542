"""Reads and writes the commands' files through tf.io.gfile, so they may be local, on s3:// or on hdfs://."""

from __future__ import annotations

import gzip
import json
import pathlib
from typing import Any

from tfsched.commands.quiet import import_tensorflow
from tfsched.errors import TfschedError


class FileError(TfschedError):
    """A file that cannot be read or written."""


def open_file(path: str, mode: str) -> Any:
    """Like ``open``. Local files need no TensorFlow; others need the file system's plug-in (extra ``io``)."""
    if "://" not in path:
        return pathlib.Path(path).open(mode)
    import_tensorflow()
    import tensorflow as tf

    try:
        import tensorflow_io  # noqa: F401  (registers s3://, hdfs://, ...)
    # It raises NotImplementedError where its own native library does not load.
    except (ImportError, NotImplementedError, OSError) as error:
        known = set(tf.io.gfile.get_registered_schemes())
        if path.partition("://")[0] not in known:
            reason = str(error).splitlines()[0]
            raise FileError(
                f"{path} is on a file system that TensorFlow {tf.__version__} does not know ({reason}); install tfsched[io] "
                "on TensorFlow 2.16.2, or copy the file here."
            ) from None
    return tf.io.gfile.GFile(path, mode)


def read_bytes(path: str) -> bytes:
    try:
        with open_file(path, "rb") as file:
            content = file.read()
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else bytes(content)
    except (TfschedError, KeyboardInterrupt):
        raise
    except Exception as error:  # OSError here, tf.errors.OpError for the remote ones
        raise FileError(f"{path} cannot be read ({_reason(error)}); check the path.") from None


def write_text(path: str, text: str) -> None:
    _write(path, "w", text)


def write_bytes(path: str, content: bytes) -> None:
    _write(path, "wb", content)


def _write(path: str, mode: str, content: str | bytes) -> None:
    try:
        with open_file(path, mode) as file:
            file.write(content)
    except (TfschedError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise FileError(f"{path} cannot be written ({_reason(error)}); check the directory and its permissions.") from None


def parse_json(content: bytes, path: str) -> Any:
    """The JSON value in `content`; `path` is for the error."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is not JSON ({_reason(error)}); give a trace or a DAG (docs/dag-format.md).") from None


def read_json(path: str) -> Any:
    return parse_json(read_bytes(path), path)


def _reason(error: BaseException) -> str:
    strerror = getattr(error, "strerror", None)
    return str(strerror or (str(error).splitlines() or [type(error).__name__])[0])
