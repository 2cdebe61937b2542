"""The schedule of a Decision: pieces, groups, preemption and a start-up cost per message, on one worker's DAG."""

from __future__ import annotations

from collections.abc import Mapping

from .dag import Dag
from .makespan import Schedule, list_schedule


def evaluate(dag: Dag, decision: Mapping[str, float], times_us: Mapping[str, float] | None = None) -> Schedule:
    """Run `dag` as `decision` says, and return the schedule in µs."""
    return list_schedule(dag, decision, times_us)
