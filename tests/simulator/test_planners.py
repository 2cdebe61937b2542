"""Planners, simulated across the barrier on a ring of two workers, are what `evaluate` says of their decisions.

There an all-reduce of b bytes takes b / bandwidth and twice the start-up, and a step begins with an idle link, for the
forward pass needs all gradients of the step before: one machine with release times and tails, which is evaluate's DAG.
"""

from __future__ import annotations

import random

import pytest

from tests.simulator.scenes import BPS, layers
from tfsched.ordering import Dag, registry
from tfsched.ordering.decision import Decision
from tfsched.ordering.evaluate import evaluate
from tfsched.simulator import Cluster, Method, Workload, simulate
from tfsched.simulator.pieces import decide, schedule


def drawn(seed: int, *, startup: bool = True) -> tuple[Workload, Cluster]:
    draw = random.Random(seed)
    rows = [(draw.randint(1, 900), draw.randint(1, 900), draw.randint(1, 5000)) for _ in range(draw.randint(1, 8))]
    startup_us = draw.choice([0.0, 5.0, 100.0]) if startup else 0.0
    cluster = Cluster(workers=2, architecture="ring", bandwidth_bps=BPS, startup_us=startup_us, barrier=False)
    return Workload.from_layers(layers(*rows)), cluster


@pytest.mark.parametrize(
    ("ordering", "policy"),
    [
        *((name, "p3") for name in ("fifo", "layer", "tio", "tao")),
        *((name, None) for name in ("bytescheduler", "p3", "mg-wfbp", "prophet", "buckets")),
    ],
)
def test_the_step_is_evaluates_makespan(ordering: str, policy: str | None) -> None:
    for seed in range(30):
        workload, cluster = drawn(seed)
        method = Method("m", ordering, policy, view="gradients")
        decision = decide(workload, cluster, method, 0)
        assert decision is not None and not decision.preemptive
        expected_us = evaluate(workload.gradient_dag(BPS, 2 * cluster.startup_us), decision).makespan_us
        assert simulate(workload, cluster, method, iterations=2).median_us == pytest.approx(expected_us), seed


FAST_BPS = 8e9  # 1000 bytes a µs


def drawn_large(draw: random.Random) -> tuple[Workload, Cluster]:
    """Tensors of up to 3 MB; times without ties, in which an order would be anybody's choice."""
    rows = [
        (draw.uniform(1, 900), draw.uniform(1, 900), draw.choice([draw.randint(1, 9_000), draw.randint(1, 3_000_000)]))
        for _ in range(draw.randint(1, 8))
    ]
    startup_us = draw.choice([0.0, 5.0, 100.0])
    cluster = Cluster(workers=2, architecture="ring", bandwidth_bps=FAST_BPS, startup_us=startup_us, barrier=False)
    return Workload.from_layers(layers(*rows)), cluster


def drawn_decision(draw: random.Random, names: list[str]) -> Decision:
    """Any order, pieces of any size, some of the tensors in groups."""
    order = draw.sample(names, len(names))
    groups = []
    while len(order) > 1 and draw.random() < 0.4:
        groups.append([order.pop() for _ in range(draw.randint(2, len(order)))])
    return Decision(
        {name: float(k) for k, name in enumerate(draw.sample(names, len(names)))},
        partition_bytes=draw.choice([0, 3_000, 4_096, 5_000, 70_001, 1_000_000]),
        credit_bytes=draw.choice([0, 1, 10_000, 2_000_000]),
        groups=groups,
        policy="bytescheduler",
    )


def test_tensors_that_are_cut_are_simulated_as_they_were_planned() -> None:
    """One function cuts for both (tfsched/_rules.py)."""
    decided: list[Decision] = []
    registry._orderings["drawn-for-a-test"] = lambda dag, times_us=None, *, seed=0: decided[-1]
    cut = 0
    try:
        for seed in range(120):
            draw = random.Random(seed)
            workload, cluster = drawn_large(draw)
            decided.append(drawn_decision(draw, list(workload.link_names)))
            method = Method("m", "drawn-for-a-test", view="gradients")
            expected_us = evaluate(workload.gradient_dag(FAST_BPS, 2 * cluster.startup_us), decided[-1]).makespan_us
            assert simulate(workload, cluster, method, iterations=2).median_us == pytest.approx(expected_us), seed
            cut += any("#" in piece.label for piece in schedule(workload, cluster, method, 0).pieces)
    finally:
        registry._orderings.pop("drawn-for-a-test")
    assert cut > 50


def test_paces_own_pieces_are_simulated_as_they_were_planned() -> None:
    for seed in range(30):
        workload, cluster = drawn_large(random.Random(seed))
        method = Method("m", "pace", view="gradients")
        decision = decide(workload, cluster, method, 0)
        assert decision is not None and decision.preemptive
        plan = Decision(decision, messages=decision.messages)
        expected_us = evaluate(workload.gradient_dag(FAST_BPS, 2 * cluster.startup_us), plan).makespan_us
        assert simulate(workload, cluster, method, iterations=2).median_us == pytest.approx(expected_us), seed


def test_buckets_plans_what_is_simulated() -> None:
    for seed in range(20):
        workload, cluster = drawn_large(random.Random(seed))
        method = Method("m", "buckets", view="gradients")
        decision = decide(workload, cluster, method, 0)
        assert decision is not None
        assert simulate(workload, cluster, method, iterations=2).median_us == pytest.approx(decision.notes["makespan_us"])


@pytest.mark.parametrize(
    ("fields", "expected_bps"),
    [
        ({"workers": 3}, BPS / 3),
        ({"workers": 3, "server_bandwidth_bps": 9 * BPS}, BPS),
        ({"workers": 3, "server_bandwidth_bps": 2 * BPS}, 2 * BPS / 3),
        ({"workers": 2, "servers": 4, "server_bandwidth_bps": BPS / 4}, BPS / 2),
        ({"workers": 4, "servers": 4, "tasks_per_host": 2}, BPS / 2),
        ({"workers": 2, "servers": 2, "colocated": True}, BPS),
    ],
)
def test_an_ordering_is_told_the_bandwidth_that_a_worker_has(fields: dict, expected_bps: float) -> None:
    told: list[float] = []

    def spy(dag: Dag, times_us: object = None, *, seed: int = 0) -> dict[str, float]:
        told.append(dag.resources["net"].bandwidth_bps or 0.0)
        return {op.name: 0.0 for op in dag.recvs}

    registry._orderings["spy-for-a-test"] = spy
    try:
        cluster = Cluster(bandwidth_bps=BPS, **fields)
        decide(Workload.from_layers(layers((1, 1, 9))), cluster, Method("m", "spy-for-a-test"), 0)
    finally:
        registry._orderings.pop("spy-for-a-test")
    assert told == [pytest.approx(expected_bps)]


def test_a_planner_uses_the_servers_own_bandwidth() -> None:
    """Three workers of 1 byte a µs and a server of 3: Prophet's one block fits before the urgent gradient is made."""
    workload = Workload.from_layers(layers((1, 100, 10), (1, 100, 90)))
    cluster = Cluster(workers=3, bandwidth_bps=BPS, server_bandwidth_bps=3 * BPS, barrier=False)
    decision = decide(workload, cluster, Method("m", "prophet", view="gradients"), 0)
    assert decision is not None
    assert [[part.recv for part in message.parts] for message in decision.messages] == [["2"], ["1"]]


def test_a_preemptive_plan_in_small_pieces_comes_near_the_optimum() -> None:
    piece = 20
    for seed in range(30):
        workload, cluster = drawn(seed, startup=False)
        method = Method("m", "pace", None, piece, view="gradients")
        decision = decide(workload, cluster, method, 0)
        assert decision is not None and decision.preemptive
        best_us = evaluate(workload.gradient_dag(BPS), decision).makespan_us
        found_us = simulate(workload, cluster, method, iterations=2).median_us
        assert best_us - 1e-6 <= found_us <= best_us + piece * len(workload.parameters), seed
