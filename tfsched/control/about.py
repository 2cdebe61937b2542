"""What this process says of itself besides counters: its tasks and what its parts have in force. Parts register here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

MAX_TEXT = 256

_LOCK = threading.Lock()
_TASKS: list[Callable[[], Iterable[str]]] = []
_PARTS: dict[str, Callable[[], Mapping[str, Any]]] = {}


def tell_tasks(read: Callable[[], Iterable[str]]) -> None:
    """From now on ``read()`` tells names of tasks of this process, "/job:ps/task:0", whenever somebody asks."""
    with _LOCK:
        if read not in _TASKS:
            _TASKS.append(read)


def tell(part: str, read: Callable[[], Mapping[str, Any]]) -> None:
    """From now on ``read()`` tells the state of ``part``: texts, numbers, booleans. It is called when somebody asks."""
    with _LOCK:
        _PARTS[part] = read


def tasks() -> list[str]:
    """The tasks of this process, each once."""
    with _LOCK:
        readers = list(_TASKS)
    return list(dict.fromkeys(name for read in readers for name in read()))


def parts() -> dict[str, dict[str, Any]]:
    """Part -> its state; parts that have none are left out, texts are cut after ``MAX_TEXT`` characters."""
    with _LOCK:
        readers = dict(_PARTS)
    told = {}
    for part, read in readers.items():
        try:
            state = dict(read())
        except Exception as error:  # one part's trouble must not hide the others
            state = {"error": f"{type(error).__name__}: {error}"}
        if state:
            told[part] = {key: _shown(value) for key, value in state.items()}
    return told


def _shown(value: Any) -> str | int | float | bool:
    return value if isinstance(value, (bool, int, float)) else cut(str(value))


def cut(text: str) -> str:
    """The text's beginning."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
