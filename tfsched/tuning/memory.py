"""Remembers the best setting by model and cluster in a JSON file, so that the next tuning begins with it."""

from __future__ import annotations

import json
import math
import os
import pathlib
from typing import Any, NamedTuple

from tfsched._rules import MIN_PARTITION_BYTES, POLICIES
from tfsched.errors import TfschedError

from .space import Setting

FORMAT = "tfsched-tuning/1"

_COUNTS = ("workers", "servers")


class Key(NamedTuple):
    """For what a setting was found. `architecture` is "ps", "allreduce" or "ring"; `servers` is 0 but for the first.

    `bandwidth_bps` is 0 where it is not known: of a training that runs.
    """

    model: str
    workers: int
    servers: int
    bandwidth_bps: float
    architecture: str

    @classmethod
    def of(cls, model: str, workers: int, servers: int, bandwidth_bps: float, architecture: str) -> Key:
        """The key with the bandwidth rounded to two digits, for one that was measured is never the same again."""
        return cls(model, workers, servers, float(f"{bandwidth_bps:.1e}"), architecture)


class Memory:
    """The results in one file.

    A file that is damaged, or that something else wrote, counts as empty and is never written to.

    Attributes:
      path: the file; it need not exist.
      problem: one sentence on why the file is ignored; "" if it is not.
    """

    def __init__(self, path: str):
        self.path = path
        self.problem = ""
        self._results: dict[Key, tuple[Setting, float]] = {}
        try:
            content = pathlib.Path(path).read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            self._ignore(f"cannot be read ({error.strerror})")
            return
        try:
            self._results = _results_of(json.loads(content))
        except RecursionError:
            self._ignore("is not JSON of this program")
        except ValueError as error:  # no JSON, no UTF-8, or what _results_of says
            self._ignore(str(error) if type(error) is _ForeignError else "is not JSON")

    def _ignore(self, why: str) -> None:
        self.problem = f"The memory {self.path} {why}, so it is ignored and not written to; delete it or name another file."

    def recall(self, key: Key) -> Setting | None:
        """The setting that was best for the key; None if none is known."""
        found = self._results.get(key)
        return found[0] if found else None

    def remember(self, key: Key, setting: Setting, seconds: float) -> None:
        """Keeps the setting and the seconds of its step in the place of what was known for the key, and writes the file.

        Does nothing if the file is ignored. What other processes have remembered since it was read stays. Raises
        TfschedError if the file cannot be written.
        """
        if self.problem:
            return
        newest = Memory(self.path)
        if newest.problem:
            self.problem = newest.problem
            return
        self._results = {**newest._results, key: (setting, seconds)}
        rows = [
            {**key._asdict(), **setting._asdict(), "seconds": taken}
            for key, (setting, taken) in sorted(self._results.items(), key=lambda item: item[0])
        ]
        _replace(self.path, json.dumps({"format": FORMAT, "results": rows}, indent=1, allow_nan=False) + "\n")


class _ForeignError(ValueError):
    """What is wrong with the file's content, as the end of a sentence."""


def _results_of(data: Any) -> dict[Key, tuple[Setting, float]]:
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("results"), list):
        raise _ForeignError(f"is not of the format {FORMAT}")
    results = {}
    for number, row in enumerate(data["results"]):
        wrong = _wrong(row)
        if wrong:
            raise _ForeignError(f"has a damaged result, number {number} ({wrong})")
        key = Key(*(row[name] for name in Key._fields))
        results[key] = Setting(*(row[name] for name in Setting._fields)), float(row["seconds"])
    return results


def _wrong(row: Any) -> str:
    """What cannot be in a result, "" if all can."""
    if not isinstance(row, dict):
        return "not an object"
    for name in ("model", "architecture"):
        if not isinstance(row.get(name), str):
            return f"no {name}"
    for name in (*_COUNTS, "partition_bytes", "credit_bytes"):
        if not isinstance(row.get(name), int) or isinstance(row[name], bool) or not 0 <= row[name] < 2**53:
            return f"no {name}"
    if 0 < row["partition_bytes"] < MIN_PARTITION_BYTES:
        return f"partition_bytes below {MIN_PARTITION_BYTES}"
    for name in ("bandwidth_bps", "seconds"):
        value = row.get(name)
        # A whole number may be too large to be a float.
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < math.inf or value > 1e300:
            return f"no {name}"
        if name == "seconds" and value == 0:
            return f"no {name}"
    return "" if row.get("policy") in POLICIES else "no policy"


def _replace(path: str, text: str) -> None:
    """Writes beside the file and moves it there: who is killed meanwhile leaves the old one whole."""
    beside = pathlib.Path(f"{path}.{os.getpid()}.new")
    try:
        try:
            beside.write_text(text, encoding="utf-8")
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise TfschedError(
            f"The memory {path} cannot be written ({error.strerror}); check the directory and its permissions."
        ) from None
