"""Tells pulls from pushes, and a step's own transfers from those of a background update."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def direction(sender: str, receiver: str) -> str:
    """ "pull" (from a parameter server), "push" (to one) or "transfer", by the names of the tasks."""
    from_ps, to_ps = ("/job:ps/" in f"{task}/" for task in (sender, receiver))
    return "transfer" if from_ps == to_ps else "pull" if from_ps else "push"


def own_step_id(sends: Iterable[Mapping[str, Any]]) -> int | None:
    """The step id under which a traced step itself ran; its background update has another.

    It is the one that pulled most bytes: a background update pulls acknowledgements at most. None if nothing was pulled.
    """
    pulled_bytes: dict[int, int] = {}
    for row in sends:
        if "step_id" in row and direction(row["from"], row["to"]) == "pull":
            pulled_bytes[row["step_id"]] = pulled_bytes.get(row["step_id"], 0) + row["bytes"]
    return max(pulled_bytes, key=lambda step_id: pulled_bytes[step_id], default=None)
