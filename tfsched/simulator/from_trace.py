"""Workloads from traced steps."""

from __future__ import annotations

from typing import Any

from .errors import SimulatorError
from .workload import Workload


def workload_of_trace(trace: Any, phase: str | None = None, worker: str | None = None) -> Workload:
    """The workload of a worker of a `tfsched.StepTrace`: its op times and transfers."""
    del phase
    if not hasattr(trace, "dag"):
        raise SimulatorError(f"the trace is a {type(trace).__name__}; give a tfsched.StepTrace")
    return Workload.from_dag(trace.dag(worker))
