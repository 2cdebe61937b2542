"""Shortest steps of small flows by other means than flow.py's: every schedule in whole units, and CP-SAT."""

from __future__ import annotations

import functools
import itertools

from tests.ordering.chain_oracles import least
from tfsched.ordering.chain import Gradient

Amounts = tuple[int, ...]
# A message that is pushed: when it can be pulled at the earliest, and what it carries.
Waiting = tuple[tuple[int, Amounts], ...]


def all_flows(gradients: list[Gradient], startup: int, limit: int, lag: int = 0, *, same_order: bool = False) -> int:
    """The least makespan over all messages of whole units of time, pushed and pulled in any order, links idle at will.

    It knows nothing of levels, sizes and windows. What cannot come below `limit` is not followed; if nothing does, `limit`
    is the answer. `same_order`: pulls go in the order of the pushes.
    """
    count = len(gradients)

    @functools.cache
    def best(now: int, up: int, down: int, left: Amounts, waiting: Waiting) -> int:
        """The least makespan of what is left to push or pull at `now`; the links are busy until `up` and `down`."""
        if not any(left) and not waiting:
            return 0
        work = sum(left)
        pulled = down + sum(startup + sum(carried) for _, carried in waiting)
        if work:
            pulled = max(pulled, max(up, now) + startup + 1 + lag) + startup + work
        # The first unit of what is left of a gradient is pushed before any of it is pulled.
        both = zip(gradients, left, strict=True)
        least = 2 * startup + 1 + lag
        ends = [max(up, now, g.release) + least + rest + g.tail for g, rest in both if rest]
        if max([pulled + gradients[0].tail, *ends]) >= limit:
            return limit
        result = limit
        if up <= now:
            ready = [range(left[i] + 1) if gradients[i].release <= now else (0,) for i in range(count)]
            for carried in itertools.product(*ready):
                if any(carried):
                    end = now + startup + sum(carried)
                    last = max(g.tail for g, amount in zip(gradients, carried, strict=True) if amount)
                    if max(end + lag, down) + startup + sum(carried) + last >= limit:
                        continue
                    rest = tuple(a - b for a, b in zip(left, carried, strict=True))
                    more = tuple(sorted((*waiting, (end + lag, carried))))
                    result = min(result, best(now, end, down, rest, more))
        if down <= now:
            for place, (at, carried) in enumerate(waiting[:1] if same_order else waiting):
                if at <= now:
                    end = now + startup + sum(carried)
                    late = max(end + gradients[i].tail for i in range(count) if carried[i])
                    if late < result:
                        fewer = waiting[:place] + waiting[place + 1 :]
                        result = min(result, max(late, best(now, up, end, left, fewer)))
        later = [at for at in (up, down, *(at for at, _ in waiting), *(g.release for g in gradients)) if at > now]
        return min(result, best(min(later), up, down, left, waiting)) if later else result

    first = gradients[0].release
    return best(first, first, first, tuple(g.wire for g in gradients), ())


def cp_sat_flow(
    gradients: list[Gradient], startup: int, lag: int = 0, *, most: int = 6, same_order: bool = False, recut: bool = False
) -> int:
    """The optimum by OR-Tools' CP-SAT with up to `most` messages of whole units.

    `same_order`: pulls go in the order of the pushes. `recut`: messages are cut and merged anew for the pulls, of which
    there may be `most` too.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    horizon = gradients[-1].release + lag + 2 * (sum(g.wire for g in gradients) + most * startup)
    goal = model.new_int_var(0, horizon + gradients[-1].tail, "makespan")

    def link(name: str) -> list[tuple[list[cp_model.IntVar], cp_model.IntVar, cp_model.IntVar, cp_model.IntVar]]:
        """Messages: (amounts, used, start, end)."""
        result = []
        for m in range(most):
            used = model.new_bool_var(f"{name}{m}")
            amounts = [model.new_int_var(0, g.wire, f"{name}{m},{i}") for i, g in enumerate(gradients)]
            start, end = model.new_int_var(0, horizon, f"{name}{m}s"), model.new_int_var(0, horizon, f"{name}{m}e")
            model.add(end == start + sum(amounts) + startup * used)
            result.append((amounts, used, start, end))
        for i, g in enumerate(gradients):
            model.add(sum(amounts[i] for amounts, *_ in result) == g.wire)
        return result

    def carries(amounts: list[cp_model.IntVar], used: cp_model.IntVar, i: int) -> cp_model.IntVar:
        some = model.new_bool_var("")
        model.add(amounts[i] == 0).only_enforce_if(~some)
        model.add_implication(some, used)
        return some

    def in_order(messages: list[tuple[list[cp_model.IntVar], cp_model.IntVar, cp_model.IntVar, cp_model.IntVar]]) -> None:
        for one, other in itertools.pairwise(messages):
            model.add(other[2] >= one[3])
            model.add_implication(other[1], one[1])

    pushes, downs = link("push"), link("pull")
    in_order(pushes)
    if recut or same_order:
        in_order(downs)
    else:
        model.add_no_overlap(
            model.new_interval_var(start, model.new_int_var(0, horizon, ""), end, "") for _, _, start, end in downs
        )
    for amounts, used, start, _ in pushes:
        for i, g in enumerate(gradients):
            model.add(start >= g.release).only_enforce_if(carries(amounts, used, i))
    for amounts, used, _, end in downs:
        for i, g in enumerate(gradients):
            model.add(goal >= end + g.tail).only_enforce_if(carries(amounts, used, i))
    if recut:
        for i, g in enumerate(gradients):
            into = [[model.new_int_var(0, g.wire, "") for _ in downs] for _ in pushes]
            for row, push in zip(into, pushes, strict=True):
                model.add(sum(row) == push[0][i])
                for amount, down in zip(row, downs, strict=True):
                    some = model.new_bool_var("")
                    model.add(amount == 0).only_enforce_if(~some)
                    model.add(down[2] >= push[3] + lag).only_enforce_if(some)
            for place, down in enumerate(downs):
                model.add(sum(row[place] for row in into) == down[0][i])
    else:
        for push, down in zip(pushes, downs, strict=True):
            model.add(push[1] == down[1])
            model.add(down[2] >= push[3] + lag).only_enforce_if(push[1])
            for a, b in zip(push[0], down[0], strict=True):
                model.add(a == b)
    return least(model, goal)
