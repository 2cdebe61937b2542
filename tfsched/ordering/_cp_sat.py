"""The shortest makespan of a small DAG by OR-Tools' constraint solver (the extra `exact`)."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from ._branch_and_bound import Found, Problem


def available() -> bool:
    """Whether the solver is installed."""
    return importlib.util.find_spec("ortools") is not None


def search(problem: Problem, makespan: int, start: Sequence[int], bound: int, time_limit_s: float) -> Found:
    """Improve the schedule (makespan, start), known to be no shorter than `bound`, until it is optimal or time is up.

    One interval an op, no two of a resource at once; on one thread, so that equal calls give equal results.
    """
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
