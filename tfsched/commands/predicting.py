"""The step that an ordering would give, for the commands that order, compare and explain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfsched._rules import chunks_of
from tfsched.commands import inputs
from tfsched.commands.flags import CommandFlags
from tfsched.errors import TfschedError
from tfsched.ordering import Dag, Schedule, get, least_regret
from tfsched.ordering.decision import Decision
from tfsched.ordering.evaluate import evaluate

MAX_PIECES = 1_000_000
# More than a century is a wrong unit, and sums of such numbers are infinite.
MAX_STEP_US = 2.0**62 / 1000


def single_dag(source: Any, flags: CommandFlags) -> Dag:
    """The DAG of one worker, on the links that the flags ask for."""
    startup_us = flags.startup_us if flags.startup_us >= 0 else None
    dag = inputs.dag_of(source, flags, inputs.parse_bandwidth(flags.bandwidth), startup_us)
    total_us = sum(dag.times_us())
    if not total_us < MAX_STEP_US:
        raise TfschedError(
            f"all ops together take {total_us:g} µs; check the times, which are in µs, and the sizes in bytes."
        )
    return dag


def decide(source: Any, dag: Dag, algorithm: str, seed: int) -> Mapping[str, float]:
    """What an ordering decides for the dag of a source; of traced all-reduces what ``StepTrace.plan`` takes."""
    if getattr(source, "exchanges", None):
        return least_regret(dag, algorithm, seed)
    return get(algorithm)(dag, seed=seed)


def predict(dag: Dag, decision: Any) -> Schedule:
    """The schedule of what an ordering decided. Raises TfschedError where it would take millions of pieces."""
    size = Decision.of(decision).partition_bytes
    pieces = sum(chunks_of(op.size_bytes or 0, size) for op in dag.recvs)
    if pieces > MAX_PIECES:
        raise TfschedError(
            f"pieces of {size} bytes would be {pieces}; check the sizes in bytes, or use an ordering that cuts nothing."
        )
    return evaluate(dag, decision)
