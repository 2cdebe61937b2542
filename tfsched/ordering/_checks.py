"""Small checks shared by the readers of this layer: numbers, names and JSON text."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Mapping
from typing import Any


def show(value: object) -> str:
    """Return a short printable form of any value, also of hostile ones, for an error sentence."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # ints past the digit limit, deeply nested lists
        return f"a {type(value).__name__} too large to print"
    return text if len(text) <= 60 else text[:57] + "..."


def number(
    value: object,
    what: str,
    error: type[ValueError],
    *,
    positive: bool = False,
    signed: bool = False,
) -> float:
    """Return `value` as a finite float of zero or more; `positive` excludes 0, `signed` allows < 0.

    Raises `error` with one sentence that starts with `what`.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise error(f"{what} is {show(value)}; give a number")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise error(f"{what} is {show(value)}; give a finite number")
    if (result < 0 and not signed) or (positive and result == 0):
        bound = "above zero" if positive else "of zero or more"
        raise error(f"{what} is {show(value)}; give a number {bound}")
    return result


def name(value: object, what: str, error: type[ValueError]) -> str:
    """Return `value` if it is a non-empty string, else raise `error` naming `what`."""
    if not isinstance(value, str) or not value:
        raise error(f"{what} is {show(value)}; give a non-empty string")
    return value


def read_object(source: object, what: str, error: type[ValueError]) -> Mapping[str, Any]:
    """Return the JSON object in `source` (str, bytes or an already decoded mapping).

    Keys given twice in one object are refused, since a decoder would silently keep the last.
    """
    if isinstance(source, (bytearray, bytes, str)):

        def pairs_to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            result = dict(pairs)
            if len(result) != len(pairs):
                keys = [key for key, _ in pairs]
                twice = next(key for i, key in enumerate(keys) if key in keys[:i])
                raise error(f"{what} gives the key {show(twice)} twice in one object; keep one")
            return result

        try:
            source = json.loads(source, object_pairs_hook=pairs_to_dict)
        except error:
            raise
        except RecursionError:
            raise error(f"{what} is nested too deeply to be read; check that it is JSON") from None
        except ValueError as exc:
            raise error(f"{what} is not JSON ({exc}); check the file") from None
    if not isinstance(source, Mapping):
        raise error(f"{what} is {show(source)}; give a JSON object")
    return source


def known_keys(entry: Mapping[str, Any], known: tuple[str, ...], what: str, error: type[ValueError]) -> None:
    """Raise `error` for the first key of `entry` that is not in `known`."""
    for key in entry:
        if key not in known:
            raise error(f"{what} has the unknown key {show(key)}; known keys: {', '.join(known)}")


def check_format(data: Mapping[str, Any], wanted: str, what: str, error: type[ValueError]) -> None:
    """Raise `error` unless the object's "format" is `wanted`."""
    if data.get("format") != wanted:
        raise error(f"{what} has format {show(data.get('format'))}; this reader knows {wanted!r}")
