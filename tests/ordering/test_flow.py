"""Push and pull through servers: against every schedule, CP-SAT, and what the simulator's production core does."""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
import random
import subprocess
import sys

import pytest

from tests.simulator.test_planners import FAST_BPS, drawn_large
from tfsched.ordering import Dag, Decision, Op, Resource, get
from tfsched.ordering.flow import Gradient, Sublot, best_flow, check, lower_bound, one_window
from tfsched.ordering.servers import pushed_first
from tfsched.simulator import Cluster, Method, simulate
from tfsched.simulator.pieces import decide

from .chain_oracles import draw_chain
from .flow_oracles import all_flows

ROOT = pathlib.Path(__file__).parents[2]
TWO = [Gradient(0, 4, 0), Gradient(3, 2, 5)]


def test_the_step_equals_every_schedule_in_whole_units() -> None:
    draw = random.Random(1)
    for _ in range(40):
        flow, startup, lag = draw_chain(draw, 3, draw.choice((3, 6, 10)), 3), draw.randrange(4), draw.choice((0, 0, 1))
        found = best_flow(flow, startup, lag)
        assert found.makespan == check(flow, startup, found.sublots, lag)
        assert found.bound <= found.makespan == all_flows(flow, startup, found.makespan, lag), (flow, startup, lag)


def test_the_bound_is_not_always_the_optimum() -> None:
    """docs/optimal.md, "Servers"."""
    flow = [Gradient(4, 3, 4), Gradient(6, 2, 8)]
    assert lower_bound(flow, 2) == 22
    assert all_flows(flow, 2, 99) == 23 == best_flow(flow, 2).makespan


def test_one_gradient_is_sent_in_equal_messages() -> None:
    for work, startup in ((1, 0), (1, 9), (100, 1), (100, 4), (1000, 7), (999_999, 300)):
        found = best_flow([Gradient(5, work, 3)], startup, 2)
        least = min((m + 1) * (work / m + startup) for m in range(1, 2000))
        assert one_window(work, startup) == pytest.approx(least, abs=1) or not startup
        assert found.bound <= found.makespan <= found.bound * 1.001 + 1
    assert one_window(100, 4) == 6 * (20 + 4)


def test_larger_flows_stay_near_the_bound() -> None:
    draw = random.Random(2)
    for _ in range(5):
        count = draw.randrange(4, 12)
        releases = sorted(draw.randrange(200_000) for _ in range(count))
        tails = sorted(draw.randrange(200_000) for _ in range(count))
        flow = [Gradient(r, draw.randrange(1, 60_000), q) for r, q in zip(releases, tails, strict=True)]
        startup = draw.choice((0, 100, 3_000))
        found = best_flow(flow, startup)
        assert lower_bound(flow, startup) == found.bound <= found.makespan <= 1.1 * found.bound


def test_the_step_equals_cp_sats_and_neither_another_order_nor_new_cuts_make_it_shorter() -> None:
    """In a process of its own: OR-tools ends one that has loaded TensorFlow with a segmentation fault."""
    if importlib.util.find_spec("ortools") is None:  # imported here it would be loaded beside TensorFlow
        pytest.skip("OR-tools is not installed")
    program = (
        "from tests.ordering.flow_oracles import cp_sat_flow as solve\n"
        "from tfsched.ordering.flow import best_flow\n"
        "from tests.ordering.chain_oracles import draw_chain\n"
        "import random\n"
        "draw = random.Random(3)\n"
        "for _ in range(5):\n"
        "    flow, startup = draw_chain(draw, 2, 14, 6), draw.randrange(2, 6)\n"
        "    found, best = best_flow(flow, startup), solve(flow, startup, most=4)\n"
        "    assert found.bound <= best == found.makespan, (flow, startup, best, found)\n"
        "    assert best == solve(flow, startup, most=4, same_order=True) == solve(flow, startup, most=4, recut=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, timeout=100, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("sublots", "message"),
    [
        ([Sublot(0, 5, ((0, 4),)), Sublot(2, 10, ((1, 2),))], "before gradient 1 is made"),
        ([Sublot(0, 4, ((0, 4),)), Sublot(5, 10, ((1, 2),))], "before its push is through"),
        ([Sublot(0, 5, ((0, 4),)), Sublot(4, 10, ((1, 2),))], "uplink carries two messages at 4"),
        ([Sublot(0, 8, ((0, 4),)), Sublot(5, 9, ((1, 2),))], "downlink carries two messages at 9"),
        ([Sublot(0, 5, ((0, 3),)), Sublot(5, 10, ((1, 2),))], "of gradient 0, 3 of 4 is sent"),
        ([Sublot(0, 5, ((0, 5), (1, 0)))], "before gradient 1 is made"),
        ([Sublot(3, 20, ((0, 5), (1, -1)))], "carries -1 of gradient 1"),
    ],
)
def test_wrong_schedules_are_told(sublots: list[Sublot], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(TWO, 1, sublots)


def test_a_right_schedule_has_its_makespan() -> None:
    assert check(TWO, 1, [Sublot(0, 5, ((0, 4),)), Sublot(5, 10, ((1, 2),))]) == 18
    assert check(TWO, 1, [Sublot(0, 11, ((0, 4),)), Sublot(5, 8, ((1, 2),))]) == 16  # the second is pulled first


def test_what_cannot_be_planned_is_refused() -> None:
    for flow, message in (
        ([], "at least one"),
        ([Gradient(0, 1, 5), Gradient(1, 1, 4)], "ascend together"),
        ([Gradient(0, 0, 5)], "no time on the link"),
    ):
        with pytest.raises(ValueError, match=message):
            best_flow(flow, 1)


def test_the_simulated_step_is_the_planned_one() -> None:
    for seed in range(6):
        workload, ring = drawn_large(random.Random(seed))
        workers = 1 + seed % 3
        cluster = dataclasses.replace(
            ring, architecture="ps", workers=workers, server_bandwidth_bps=workers * FAST_BPS, updates="piece"
        )
        method = Method("m", "optimal", view="gradients")
        plan = decide(workload, cluster, method, 0)
        assert plan is not None and plan.notes["chosen"] == "flow"
        assert plan.notes["bound_us"] <= plan.notes["makespan_us"]
        assert simulate(workload, cluster, method, iterations=2).median_us == pytest.approx(
            plan.notes["makespan_us"], rel=2e-5
        )
        for name in ("us-byte", "buckets", "bytescheduler"):
            other_us = simulate(workload, cluster, Method("m", name, view="gradients"), iterations=2).median_us
            assert other_us >= plan.notes["bound_us"] * (1 - 2e-5), (seed, name)


def test_where_whole_tensors_are_updated_or_the_barrier_stands_the_plan_is_that_of_one_link() -> None:
    workload, ring = drawn_large(random.Random(3))
    for fields in ({"updates": "tensor"}, {"updates": "piece", "barrier": True}):
        cluster: Cluster = dataclasses.replace(ring, architecture="ps", workers=1, **fields)
        plan = decide(workload, cluster, Method("m", "optimal", view="gradients"), 0)
        assert plan is not None and plan.notes["chosen"] != "flow"


def test_each_transfer_becomes_two_and_names_that_exist_are_left_alone() -> None:
    resources = [Resource("cpu", "compute"), Resource("net", "link", 8e6, 2.0)]
    ops = [
        Op("b", "cpu", (), 4.0),
        Op("x/push", "cpu", ("b",), 1.0),
        Op("x", "net", ("b",), None, 6),
        Op("f", "cpu", ("x",), 2.0),
    ]
    dag = pushed_first(Dag(resources, ops))
    assert [(op.name, op.resource, op.inputs) for op in dag.recvs] == [
        ("x/push'", "net/up", ("b",)),
        ("x", "net", ("x/push'",)),
    ]
    plan = get("optimal")(dag)
    assert isinstance(plan, Decision) and set(plan) == {"x", "x/push'"}
    # Two messages of 3 bytes: 4 + 3 * (2 + 3) + 2.
    assert plan.notes["bound_us"] == 21.0 and plan.notes["gap"] < 0.002 and len(plan.messages) == 2
