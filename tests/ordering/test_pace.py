"""PACE against the paper's linear program, an exhaustive search, and brute force over all chain partitions."""

from __future__ import annotations

import functools
import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog  # type: ignore[import-untyped]

from tfsched.ordering import Dag, Decision, Op, Resource, evaluate, get, list_schedule
from tfsched.ordering.evaluate import sent
from tfsched.ordering.fusion import MaxMinSize, Tensor, fuse, long_chain_ends
from tfsched.ordering.jackson import Job, preemptive_schedule
from tfsched.ordering.pace import pace


def draw_jobs(draw: random.Random, most: int, longest: int) -> list[Job]:
    return [
        Job(draw.randrange(0, 2 * longest), draw.randrange(1, longest + 1), draw.randrange(0, 2 * longest))
        for _ in range(draw.randrange(1, most + 1))
    ]


def slots(jobs: list[Job]) -> int:
    return max(job.release for job in jobs) + sum(job.length for job in jobs)


def check_schedule(jobs: list[Job]) -> int:
    """The schedule is one machine's, respects the releases and does all work; returns its makespan."""
    schedule = preemptive_schedule(jobs)
    done = [0] * len(jobs)
    for first, second in itertools.pairwise(schedule.slices):
        assert first.end <= second.start
    for piece in schedule.slices:
        assert piece.start >= jobs[piece.job].release
        done[piece.job] += piece.end - piece.start
    assert done == [job.length for job in jobs]
    assert schedule.makespan == max(end + job.tail for end, job in zip(schedule.ends, jobs, strict=True))
    return schedule.makespan


def lp_optimum(jobs: list[Job]) -> int:
    """Objective (10) over the relaxed constraints (3)(6)(7) of the paper, by HiGHS.

    x_i(t) = 1 if slot t works on i. The matrix is totally unimodular (Theorem 2), and max(t x_i(t) + q_i) <= D only forbids
    slots, so the least D for which the LP can place all work is the optimum. (Objective (14) orders the same vertices by
    coefficients (TN)^(t + q), which no floating-point number holds beyond toy sizes; those are tested below.)
    """
    horizon = slots(jobs)
    work = sum(job.length for job in jobs)
    a_ub = np.zeros((horizon + len(jobs), horizon * len(jobs)))
    for i in range(len(jobs)):
        for t in range(horizon):
            a_ub[t, i * horizon + t] = 1.0  # (6)
            a_ub[horizon + i, i * horizon + t] = 1.0  # (3), as an upper bound on what is placed
    b_ub = [1.0] * horizon + [float(job.length) for job in jobs]

    def placed(bound: int) -> float:
        # Slot t ends at t + 1. (7) and the bound leave the slots from r_i to D - q_i.
        allowed = [(0.0, float(job.release <= t and t + 1 + job.tail <= bound)) for job in jobs for t in range(horizon)]
        return float(-linprog([-1.0] * len(allowed), A_ub=a_ub, b_ub=b_ub, bounds=allowed, method="highs").fun)

    low = max(job.release + job.length + job.tail for job in jobs)
    high = horizon + max(job.tail for job in jobs)
    while low < high:
        middle = (low + high) // 2
        if placed(middle) > work - 0.5:
            high = middle
        else:
            low = middle + 1
    return low


def test_equals_the_linear_program_on_500_instances() -> None:
    draw = random.Random(4)
    for _ in range(500):
        jobs = draw_jobs(draw, 5, 4)
        assert check_schedule(jobs) == lp_optimum(jobs)


def test_equals_the_program_as_printed_on_toys() -> None:
    """(14): minimise the sum of (TN)^q lambda0 + (TN)^(t + q) lambda1, with slots numbered from 1."""
    draw = random.Random(14)
    for _ in range(60):
        jobs = [Job(draw.randrange(0, 2), draw.randrange(1, 3), draw.randrange(0, 3)) for _ in range(2)]
        horizon = slots(jobs)
        base = float(horizon * len(jobs))
        cost = [base ** (t + job.tail) - base**job.tail for job in jobs for t in range(1, horizon + 1)]
        a_ub = np.zeros((horizon + 2, 2 * horizon))
        for i in range(2):
            for t in range(horizon):
                a_ub[t, i * horizon + t] = 1.0
                a_ub[horizon + i, i * horizon + t] = -1.0
        b_ub = [1.0] * horizon + [-float(job.length) for job in jobs]
        allowed = [(0.0, float(job.release <= t)) for job in jobs for t in range(horizon)]
        found = linprog(cost, A_ub=a_ub, b_ub=b_ub, bounds=allowed, method="highs-ds")
        x = np.round(found.x).reshape(2, horizon)
        assert np.abs(x.ravel() - found.x).max() < 1e-6  # Theorem 2
        ends = [int(np.flatnonzero(row).max()) + 1 for row in x]
        assert max(end + job.tail for end, job in zip(ends, jobs, strict=True)) == preemptive_schedule(jobs).makespan


def exhaustive_optimum(jobs: list[Job]) -> int:
    """The least max(end + tail) over everything the machine could do in each slot, idling included."""
    horizon = slots(jobs)

    @functools.cache
    def best(now: int, left: tuple[int, ...]) -> int:
        if not any(left):
            return 0
        if now >= horizon:
            return 10**9
        results = [best(now + 1, left)]
        for i, job in enumerate(jobs):
            if left[i] and job.release <= now:
                rest = best(now + 1, (*left[:i], left[i] - 1, *left[i + 1 :]))
                results.append(max(rest, now + 1 + job.tail if left[i] == 1 else 0))
        return min(results)

    return best(0, tuple(job.length for job in jobs))


def test_equals_the_exhaustive_optimum_on_500_tiny_instances() -> None:
    draw = random.Random(5)
    for _ in range(500):
        jobs = draw_jobs(draw, 4, 3)
        assert check_schedule(jobs) == exhaustive_optimum(jobs)


def chain_partitions(number: int, groups: int) -> list[list[int]]:
    return [[*cuts, number] for cuts in itertools.combinations(range(1, number), groups - 1)]


def printed(sizes: list[int], groups: int) -> tuple[float, list[list[int]]]:
    """MaxMinSize, lines 11-23, as it stands in the paper; the groups of best_groups are put in the order of the chain."""
    if groups == 1:
        return sum(sizes), [sizes]
    if groups > len(sizes):
        return -math.inf, []
    maxmin_size, best_groups = 0.0, []
    for end in range(1, len(sizes) + 1):
        t_size, t_groups = printed(sizes[end:], groups - 1)
        temp_size = min(sum(sizes[:end]), t_size)
        if maxmin_size < temp_size:
            maxmin_size, best_groups = temp_size, [sizes[:end], *t_groups]
    return maxmin_size, best_groups


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=8))
def test_chains_are_cut_as_printed(sizes: list[int]) -> None:
    short = MaxMinSize(sizes)
    for groups in range(1, len(sizes) + 1):
        assert [sizes[a:b] for a, b in itertools.pairwise([0, *short.ends(groups)])] == printed(sizes, groups)[1]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.data())
def test_max_min_partitions_against_all_partitions(sizes: list[int], data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, len(sizes)))

    def smallest(ends: list[int]) -> int:
        return min(sum(sizes[a:b]) for a, b in itertools.pairwise([0, *ends]))

    for ends in (MaxMinSize(sizes).ends(groups), long_chain_ends(sizes, groups)):
        assert len(ends) == groups and ends == sorted(set(ends)) and ends[-1] == len(sizes)
        assert smallest(ends) == max(map(smallest, chain_partitions(len(sizes), groups)))


def draw_tensors(draw: random.Random, most: int) -> list[Tensor]:
    startup = draw.randrange(0, 8)
    tensors = []
    for _ in range(draw.randrange(1, most + 1)):
        size = draw.randrange(1, 10)
        tensors.append(Tensor(draw.randrange(0, 30), startup, size, draw.randrange(0, 30), size))
    return tensors


def test_fusion_is_algorithm_1_by_brute_force() -> None:
    """For each R some max-min partition, scored by the optimal schedule; and R = N, no fusion, is among them."""
    draw = random.Random(1)
    helped = 0
    for _ in range(200):
        tensors = draw_tensors(draw, 7)
        chain = sorted(range(len(tensors)), key=lambda i: (tensors[i].release, -tensors[i].tail, i))
        fusion = fuse(tensors)
        assert [i for group in fusion.groups for i in group] == chain
        if tensors[0].startup:  # lines 3, 7-9: the first R that is better than those before it
            spans = [fuse(tensors, counts=[count]).schedule.makespan for count in range(1, len(tensors) + 1)]
            assert len(fusion.groups) == 1 + spans.index(min(spans))
        alone = preemptive_schedule([Job(t.release, t.startup + t.wire, t.tail) for t in tensors]).makespan
        assert fusion.schedule.makespan <= alone
        helped += fusion.schedule.makespan < alone
        # Not better than the best of all chain partitions, of which Algorithm 1 looks at one per R.
        bounds = []
        for count in range(1, len(tensors) + 1):
            for ends in chain_partitions(len(tensors), count):
                groups = [[tensors[i] for i in chain[a:b]] for a, b in itertools.pairwise([0, *ends])]
                bounds.append(
                    preemptive_schedule(
                        [
                            Job(
                                max(t.release for t in g),
                                g[0].startup + sum(t.wire for t in g),
                                max(t.tail for t in g),
                            )
                            for g in groups
                        ]
                    ).makespan
                )
        assert min(bounds) <= fusion.schedule.makespan
        if not tensors[0].startup:
            assert fusion.schedule.makespan == min(bounds) == alone  # why fuse() does not even try
    assert helped > 50


def test_a_long_chain_is_fused_quickly_and_no_worse_than_unfused() -> None:
    draw = random.Random(2)
    tensors = [Tensor(10 * i, 50, size := draw.randrange(1, 40), 10 * i, size) for i in range(600)]
    fusion = fuse(tensors)
    assert fusion.schedule.makespan < preemptive_schedule([Job(t.release, 50 + t.wire, t.tail) for t in tensors]).makespan
    assert 1 < len(fusion.groups) < 600


def training_chain(draw: random.Random, layers: int, startup_us: float = 0.0) -> Dag:
    ops = []
    for k in range(layers - 1, -1, -1):
        ops.append(Op(f"b{k}", "cpu", () if k == layers - 1 else (f"b{k + 1}",), float(draw.randrange(1, 9))))
        ops.append(Op(f"g{k}", "net", (f"b{k}",), None, draw.randrange(1, 12)))
    for k in range(layers):
        before = f"f{k - 1}" if k else "b0"
        ops.append(Op(f"f{k}", "cpu", (f"g{k}", before), float(draw.randrange(1, 9))))
    return Dag([Resource("cpu", "compute"), Resource("net", "link", 8e6, startup_us)], ops)


def test_on_a_chain_the_evaluated_schedule_is_the_optimum_and_nobody_is_better() -> None:
    """ByteScheduler's Theorem 1 says the same of a chain: priority queuing with preemption is optimal."""
    draw = random.Random(3)
    for _ in range(100):
        dag = training_chain(draw, draw.randrange(1, 9))
        decision = pace(dag)
        assert decision.preemptive and decision.groups == ()
        times = dict(zip([op.name for op in dag.ops], dag.times_us(), strict=True))
        backward = forward = 0.0
        jobs = []
        layers = len(dag.recvs)
        tails = [sum(times[f"f{k}"] for k in range(i, layers)) for i in range(layers)]
        for k in range(layers - 1, -1, -1):
            backward += times[f"b{k}"]
            jobs.append(Job(int(backward), int(times[f"g{k}"]), int(tails[k])))
        forward = backward + tails[0]
        optimum = max(preemptive_schedule(jobs).makespan, forward)
        assert evaluate(dag, decision).makespan_us == optimum
        for name in ("fifo", "layer", "tio", "tao", "prophet", "mg-wfbp", "p3", "bytescheduler"):
            assert evaluate(dag, get(name)(dag)).makespan_us >= optimum
        for order in itertools.islice(itertools.permutations(range(layers)), 24):
            priorities = {f"g{k}": float(p) for k, p in enumerate(order)}
            assert evaluate(dag, Decision(priorities, preemptive=True)).makespan_us >= optimum


def test_figures_1_and_2() -> None:
    """The 9 ops are those of the text (Add after Mul and AR2, AR2 after dAdd, dAdd after dReLu, Mul after AR3).

    The times stand in a picture only. The reading: the smallest whole numbers with which everything in the text holds, the
    cut of AR1 when AR2 is ready, that of AR2 when AR3 is, then the rest of AR2 and of AR1, and 25 % less than FIFO.
    """
    times = dict.fromkeys(("dReLu", "dAdd", "dMul", "Mul", "AR3"), 1.0) | {"AR1": 3.0, "AR2": 2.0, "Add": 2.0, "ReLu": 2.0}
    inputs = {
        "dReLu": (), "AR1": ("dReLu",), "dAdd": ("dReLu",), "AR2": ("dAdd",), "dMul": ("dAdd",), "AR3": ("dMul",),
        "Mul": ("AR3",), "Add": ("Mul", "AR2"), "ReLu": ("Add", "AR1"),
    }  # fmt: skip
    dag = Dag(
        [Resource("gpu", "compute"), Resource("net", "link")],
        [Op(name, "net" if name.startswith("AR") else "gpu", inputs[name], times[name]) for name in inputs],
    )
    fifo = evaluate(dag, get("fifo")(dag))
    assert fifo.start_us["AR2"] == fifo.end_us["AR1"] and fifo.start_us["AR3"] == fifo.end_us["AR2"]
    ahead = evaluate(dag, {"AR1": 0.0, "AR3": 1.0, "AR2": 2.0})
    assert ahead.makespan_us < fifo.makespan_us  # "if we schedule AR3 ahead of AR2"
    decision = pace(dag)
    assert [s.recvs[0] for s in sent(dag, decision)] == ["AR1", "AR2", "AR3", "AR2", "AR1"]
    best = evaluate(dag, decision).makespan_us
    assert (fifo.makespan_us, best) == (12.0, 9.0)
    assert best == pytest.approx(0.75 * fifo.makespan_us)


def test_the_pieces_are_the_stretches_of_the_schedule() -> None:
    """Section II-C: "AR1 is partitioned into two smaller all-reduce operators with uneven tensor partition"."""
    inputs = {"AR1": ("dReLu",), "AR2": ("dAdd",), "AR3": ("dMul",)}
    ops = [Op("dReLu", "gpu", (), 1.0), Op("dAdd", "gpu", ("dReLu",), 1.0), Op("dMul", "gpu", ("dAdd",), 1.0)]
    ops += [Op(name, "net", inputs[name], None, size) for name, size in (("AR1", 3), ("AR2", 2), ("AR3", 1))]
    ops += [Op("Mul", "gpu", ("AR3",), 1.0), Op("Add", "gpu", ("Mul", "AR2"), 2.0), Op("ReLu", "gpu", ("Add", "AR1"), 2.0)]
    dag = Dag([Resource("gpu", "compute"), Resource("net", "link", 8e6)], ops)
    decision = pace(dag)
    pieces = [(part.recv, part.size_bytes) for message in decision.messages for part in message.parts]
    assert pieces == [("AR1", 1), ("AR2", 1), ("AR3", 1), ("AR2", 1), ("AR1", 2)]
    assert evaluate(dag, in_pieces(decision)).makespan_us == evaluate(dag, decision).makespan_us == 9.0


def in_pieces(decision: Decision) -> Decision:
    """What a wire is given that does not preempt."""
    return Decision(decision, messages=decision.messages)


def test_without_startup_the_pieces_reach_the_optimum() -> None:
    draw = random.Random(6)
    for _ in range(100):
        dag = training_chain(draw, draw.randrange(1, 9))
        decision = pace(dag)
        assert evaluate(dag, in_pieces(decision)).makespan_us == pytest.approx(evaluate(dag, decision).makespan_us)


def test_fused_pieces_carry_every_byte_and_one_startup_each() -> None:
    draw = random.Random(8)
    cut = 0
    for _ in range(60):
        dag = training_chain(draw, draw.randrange(2, 20), startup_us=float(draw.randrange(1, 12)))
        decision = pace(dag)
        sizes = dict.fromkeys(decision, 0)
        for message in decision.messages:
            for part in message.parts:
                sizes[part.recv] += part.size_bytes
        assert sizes == {op.name: op.size_bytes for op in dag.recvs}
        messages = sent(dag, in_pieces(decision))
        assert len(messages) == len(decision.messages)
        cut += len(messages) > len(dag.recvs) - sum(len(group) - 1 for group in decision.groups)
    assert cut > 5


def test_groups_pay_off_with_a_startup_cost() -> None:
    dag = training_chain(random.Random(9), 30, startup_us=20.0)
    fused = pace(dag)
    alone = Decision(fused, preemptive=True)
    assert fused.groups and evaluate(dag, fused).makespan_us < evaluate(dag, alone).makespan_us
    assert evaluate(dag, fused).makespan_us < list_schedule(dag, get("tao")(dag)).makespan_us


def test_recvs_that_wait_for_recvs_are_never_fused() -> None:
    ops = [
        Op("a", "net", (), None, 5), Op("x", "cpu", ("a",), 1.0), Op("b", "net", ("x",), None, 5),
        Op("c", "net", (), None, 5), Op("y", "cpu", ("b", "c"), 1.0),
    ]  # fmt: skip
    dag = Dag([Resource("cpu", "compute"), Resource("net", "link", 8e6, 100.0)], ops)
    decision = pace(dag)
    assert decision.groups == (("a", "c"),)
    assert evaluate(dag, decision).makespan_us == 110 + 1 + 105 + 1
