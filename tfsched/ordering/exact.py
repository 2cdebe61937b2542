"""The best possible makespan of a small DAG, proven, and how far an order that was not proven may be from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from . import _branch_and_bound, _cp_sat, _paths
from ._branch_and_bound import Problem
from .dag import Dag
from .decision import Decision
from .makespan import list_schedule
from .oracle import times_ns
from .registry import OrderingError, get, register

SOLVERS = ("cp-sat", "branch-and-bound")
# Larger dags are not searched: the result is the best of the quick orderings, with its bound. The branch and bound recurses
# once an op.
MOST_OPS = {"cp-sat": 2_000, "branch-and-bound": 400}


# The registered ordering searches for a minute up to here and for 10 s beyond, where more time seldom proves more.
SMALL_RECVS = 40


class Optimum(NamedTuple):
    """A schedule, and a makespan below which there is none; `proven` if the two are equal. All in µs."""

    makespan_us: float
    bound_us: float
    start_us: dict[str, float]
    proven: bool
    solver: str

    @property
    def gap(self) -> float:
        """How much longer the schedule may be than the optimum: 0.01 is 1 %."""
        return self.makespan_us / self.bound_us - 1.0 if self.bound_us else 0.0


def solve(
    dag: Dag,
    times_us: Mapping[str, float] | None = None,
    *,
    time_limit_s: float = 60.0,
    solver: str | None = None,
) -> Optimum:
    """Return the shortest schedule over all orders of the transfers and of the computation, waiting on purpose included.

    Every resource runs one op at a time and none is cut (TicTac, section 3); an op of time 0 occupies nothing. No ordering
    can be better in `list_schedule`; cutting and merging transfers (PACE) may be. The solver is OR-Tools' CP-SAT where the
    extra `exact` is installed, else a branch and bound; both start from the best of the quick orderings and
    need seconds for 20 recvs. When the limit runs out, `bound_us` and `gap` say what is known.

    Raises DagError for a bad time and OrderingError for an unknown solver.
    """
    if solver is None:
        solver = SOLVERS[0] if _cp_sat.available() else SOLVERS[1]
    if solver not in SOLVERS or (solver == "cp-sat" and not _cp_sat.available()):
        raise OrderingError(f"the solver {solver!r} is unknown or not installed; give branch-and-bound")
    problem, order, scale = _problem(dag, times_us)
    start = _quick_start(dag, times_us, problem, order)
    makespan = max(s + t for s, t in zip(start, problem.duration, strict=True))
    bound = _branch_and_bound.lower_bound(problem)
    found = _branch_and_bound.Found(makespan, start, bound)
    if bound < makespan and len(dag.ops) <= MOST_OPS[solver]:
        if solver == "cp-sat":
            found = _cp_sat.search(problem, makespan, start, bound, time_limit_s)
        else:
            found = _branch_and_bound.search(problem, makespan, start, time_limit_s)
    unit = scale / 1000.0
    names = [dag.ops[i].name for i in order]
    return Optimum(
        found.makespan * unit,
        found.bound * unit,
        {name: s * unit for name, s in zip(names, found.start, strict=True)},
        found.bound >= found.makespan,
        solver,
    )


@register("exact")
def exact(dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0, time_limit_s: float = 60.0) -> Decision:
    """Return priorities by start in the best schedule that `solve` finds; `notes` has its makespan, bound and gap.

    The best schedule may order the computation or wait in ways that priorities of transfers cannot say, so
    `list_schedule` of them may be longer than `notes["makespan_us"]`. Same result for the same dag where it is proven.
    `seed` is not used.
    """
    if time_limit_s is None:
        time_limit_s = 60.0 if len(dag.recvs) <= SMALL_RECVS else 10.0
    best = solve(dag, times_us, time_limit_s=time_limit_s)
    rank = _paths.ranks([round(best.start_us[op.name] * 1000.0) for op in dag.recvs])
    notes = {
        "makespan_us": best.makespan_us,
        "bound_us": best.bound_us,
        "gap": best.gap,
        "proven": best.proven,
        "solver": best.solver,
    }
    return Decision({op.name: r for op, r in zip(dag.recvs, rank, strict=True)}, notes=notes)


def _problem(dag: Dag, times_us: Mapping[str, float] | None) -> tuple[Problem, list[int], int]:
    """Return the problem, the dag's position of each of its ops, and the ns in one of its units."""
    duration = times_ns(dag, times_us)
    order = list(dag.topological_order)
    place = {i: k for k, i in enumerate(order)}
    scale = math.gcd(*duration) or 1
    tails = _paths.tails(dag, duration)
    busy = list(dict.fromkeys(dag.ops[i].resource for i in order if duration[i]))
    number = {name: r for r, name in enumerate(busy)}
    problem = Problem(
        tuple(duration[i] // scale for i in order),
        tuple(tuple(place[j] for j in dag.input_indices[i]) for i in order),
        tuple(tuple(place[j] for j in dag.consumers[i]) for i in order),
        tuple(number[dag.ops[i].resource] if duration[i] else -1 for i in order),
        tuple(tails[i] // scale for i in order),
        len(busy),
    )
    return problem, order, scale


def _quick_start(dag: Dag, times_us: Mapping[str, float] | None, problem: Problem, order: list[int]) -> list[int]:
    """Return the starts of the best schedule of the quick orderings, in the problem's units.

    Replayed in whole numbers, as the list schedule adds floating-point times.
    """
    best: list[int] = []
    best_makespan = math.inf
    for name in ("tio", "tao", "layer", "lookahead"):
        schedule = list_schedule(dag, get(name)(dag, times_us), times_us)
        by_start = sorted(range(len(order)), key=lambda k: (schedule.start_us[dag.ops[order[k]].name], k))
        free = [0] * problem.resources
        start = [0] * len(order)
        for k in by_start:
            ready = max((start[j] + problem.duration[j] for j in problem.inputs[k]), default=0)
            r = problem.resource[k]
            start[k] = max(ready, free[r]) if r >= 0 else ready
            if r >= 0:
                free[r] = start[k] + problem.duration[k]
        makespan = max(s + t for s, t in zip(start, problem.duration, strict=True))
        if makespan < best_makespan:
            best, best_makespan = start, makespan
    return best
