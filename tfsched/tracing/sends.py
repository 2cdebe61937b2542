"""Which of a scheduler's transfers belong to which traced step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tfsched.tracing.directions import direction
from tfsched.tracing.step_trace import TracedStep


def add_sends(steps: Sequence[TracedStep], rows: Iterable[dict[str, Any]], behind_the_end: bool = False) -> None:
    """Gives each step the rows of ``tfsched.transfers()`` that it caused; ``behind_the_end``: also those after its end."""
    rows = list(rows)
    for number, step in enumerate(steps):
        following = steps[number + 1 :]
        until_us = following[0].start_us if following else float("inf")
        step.sends.extend(
            row
            for row in rows
            if step.start_us <= row["started_us"] < until_us
            # After the step's end only what a background update pushes is still a step's; the rest is others'.
            and (behind_the_end or row["started_us"] <= step.end_us or direction(row["from"], row["to"]) == "push")
        )
