"""Shortest steps of small chains by other means than chain.py's: all cuts, all schedules in whole units, and CP-SAT."""

from __future__ import annotations

import functools
import itertools
import random

from tfsched.ordering.chain import Gradient, value


def draw_chain(draw: random.Random, most: int, horizon: int, longest: int) -> list[Gradient]:
    """1 to `most` opposed gradients; few values, so that ties are common."""
    count = draw.randrange(1, most + 1)
    releases = sorted(draw.randrange(horizon) for _ in range(count))
    tails = sorted(draw.randrange(horizon) for _ in range(count))
    return [Gradient(r, draw.randrange(1, longest + 1), q) for r, q in zip(releases, tails, strict=True)]


def all_cuts(gradients: list[Gradient], startup: int) -> int:
    """The least value of the formula over all 4^(n - 1) pairs of L and R."""
    last = len(gradients) - 1
    sides = [[i for i in range(last) if chosen >> i & 1] + [last] for chosen in range(2**last)]
    return min(value(gradients, startup, left, right) for left, right in itertools.product(sides, sides))


def all_schedules(gradients: list[Gradient], startup: int) -> int:
    """The least makespan over every sequence of messages that carry whole units of time, idling until any release included.

    It knows nothing of cuts: at each point in time any amounts of any released gradients may become one message.
    """
    count = len(gradients)

    @functools.cache
    def best(now: int, left: tuple[int, ...]) -> int:
        if not any(left):
            return 0
        later = [g.release for g, rest in zip(gradients, left, strict=True) if rest and g.release > now]
        result = best(min(later), left) if later else 10**9
        ready = [range(left[i] + 1) if gradients[i].release <= now else (0,) for i in range(count)]
        for carried in itertools.product(*ready):
            if not any(carried):
                continue
            end = now + startup + sum(carried)
            rest = tuple(a - b for a, b in zip(left, carried, strict=True))
            late = max((end + gradients[i].tail for i in range(count) if carried[i] and not rest[i]), default=0)
            if late < result:
                result = min(result, max(late, best(end, rest)))
        return result

    return best(gradients[0].release, tuple(g.wire for g in gradients))


def cp_sat(gradients: list[Gradient], startup: int) -> int:
    """The optimum by OR-Tools' CP-SAT with up to 2 n messages in order of time; gradients need not be opposed."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    count = len(gradients)
    work = sum(g.wire for g in gradients)
    most = max(g.release for g in gradients) + work + startup + max(g.tail for g in gradients)
    goal = model.new_int_var(0, most, "makespan")
    before = 0
    carried = []
    for m in range(2 * count):
        start, end = model.new_int_var(0, most, f"start{m}"), model.new_int_var(0, most, f"end{m}")
        used = model.new_bool_var(f"used{m}")
        amounts = [model.new_int_var(0, g.wire, f"x{m},{i}") for i, g in enumerate(gradients)]
        model.add(end == start + sum(amounts) + startup * used)
        model.add(start >= before)
        for i, g in enumerate(gradients):
            some = model.new_bool_var(f"some{m},{i}")
            model.add(amounts[i] == 0).only_enforce_if(~some)
            model.add_implication(some, used)
            model.add(start >= g.release).only_enforce_if(some)
            model.add(goal >= end + g.tail).only_enforce_if(some)
        before = end
        carried.append(amounts)
    for i, g in enumerate(gradients):
        model.add(sum(amounts[i] for amounts in carried) == g.wire)
    return least(model, goal)


def least(model, goal) -> int:
    """The least value of `goal` in CP-SAT's model, proven within a minute."""
    from ortools.sat.python import cp_model

    model.minimize(goal)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = 60.0
    status = solver.solve(model)
    assert status == cp_model.OPTIMAL, "not proven within a minute"
    return int(solver.objective_value)
