"""The shortest makespan of a small DAG by OR-Tools' constraint solver (the extra `exact`)."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

from ._branch_and_bound import Found, Problem
from .registry import OrderingError

_STARTING_S = 60.0  # for a process to load the solver, on a busy machine


def available() -> bool:
    """Whether the solver is installed."""
    return importlib.util.find_spec("ortools") is not None


def search(problem: Problem, makespan: int, start: Sequence[int], bound: int, time_limit_s: float) -> Found:
    """Improve the schedule (makespan, start), known to be no shorter than `bound`, until it is optimal or time is up.

    In a process that has loaded TensorFlow the solver runs in one of its own: together they crash (OR-Tools 9.15 and
    TensorFlow 2.21, both with their own absl and protobuf). Raises OrderingError if that process fails.
    """
    if "tensorflow" not in sys.modules:
        return _search(problem, makespan, start, bound, time_limit_s)
    request = json.dumps([problem, makespan, list(start), bound, time_limit_s])
    root = str(pathlib.Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    try:
        result = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", __name__],
            input=request,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
            cwd=root,  # else another tfsched in the working directory would be imported
            timeout=time_limit_s + _STARTING_S,
        )
    except subprocess.TimeoutExpired:
        raise OrderingError(f"the solver's process ran for more than {time_limit_s:g} s; use branch-and-bound") from None
    try:
        return Found(*json.loads(result.stdout))
    except (ValueError, TypeError):
        raise OrderingError(f"the solver's process ended with code {result.returncode}; use branch-and-bound") from None


def _search(problem: Problem, makespan: int, start: Sequence[int], bound: int, time_limit_s: float) -> Found:
    """One interval an op, no two of a resource at once; on one thread, so that equal calls give equal results."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    starts = []
    on_resource: list[list[cp_model.IntervalVar]] = [[] for _ in range(problem.resources)]
    for i, time in enumerate(problem.duration):
        variable = model.new_int_var(0, makespan - time - problem.tail[i], f"s{i}")
        model.add_hint(variable, start[i])
        starts.append(variable)
        if problem.resource[i] >= 0:
            on_resource[problem.resource[i]].append(model.new_fixed_size_interval_var(variable, time, f"i{i}"))
    for i, inputs in enumerate(problem.inputs):
        for j in inputs:
            model.add(starts[i] >= starts[j] + problem.duration[j])
    for intervals in on_resource:
        if len(intervals) > 1:
            model.add_no_overlap(intervals)
    goal = model.new_int_var(bound, makespan, "makespan")
    for i, time in enumerate(problem.duration):
        if not problem.consumers[i]:
            model.add(goal >= starts[i] + time)
    model.minimize(goal)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Found(makespan, list(start), bound)
    found = [int(solver.value(variable)) for variable in starts]
    best = max(s + time for s, time in zip(found, problem.duration, strict=True))
    least = best if status == cp_model.OPTIMAL else max(bound, int(solver.best_objective_bound))
    return Found(best, found, least)


if __name__ == "__main__":
    fields, *others = json.load(sys.stdin)
    print(json.dumps(_search(Problem(*fields), *others)))
