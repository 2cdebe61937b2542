"""Which tf.functions of this process the pass has cut at the barrier: these wait for earlier updates by themselves."""

from __future__ import annotations

import threading
from typing import Any

from tfsched.grappler.graph_records import PARAMETER

# The parameters that a call's config gives the pass, so that the caller can ask for what came of them.
Key = frozenset[tuple[str, Any]]

_LOCK = threading.Lock()
_CUT: set[tuple[str, Key]] = set()


def key_of(parameters: dict[str, Any]) -> Key:
    """The key of an optimizer's parameters. A traced call is another instantiation of the same graph."""
    return frozenset((name, value) for name, value in parameters.items() if name != PARAMETER)


def note(function: str, key: Key, cut: bool) -> None:
    """The pass has seen the function's graph; ``cut`` says whether its updates go on behind its end."""
    with _LOCK:
        (_CUT.add if cut else _CUT.discard)((function, key))


def is_cut(function: str, key: Key) -> bool:
    """Whether the pass has cut the function's graph when it saw it last."""
    return (function, key) in _CUT
