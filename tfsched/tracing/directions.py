"""Tells pulls from pushes, and a step's own transfers from those of a background update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def direction(sender: str, receiver: str) -> str:
    """ "pull" (from a parameter server), "push" (to one) or "transfer", by the names of the tasks."""
    from_ps, to_ps = ("/job:ps/" in f"{task}/" for task in (sender, receiver))
    return "transfer" if from_ps == to_ps else "pull" if from_ps else "push"


def in_background(send: Mapping[str, Any]) -> bool:
    """Whether a background update sent this: its steps have negative ids, a session's positive ones."""
    return int(send.get("step_id", 0)) < 0
