"""Planners, simulated across the barrier on a ring of two workers, are what `evaluate` says of their decisions.

There an all-reduce of b bytes takes b / bandwidth and twice the start-up, and a step begins with an idle link, for the
forward pass needs all gradients of the step before: one machine with release times and tails, which is evaluate's DAG.
"""

from __future__ import annotations

import random

import pytest

from tests.simulator.scenes import BPS, layers
from tfsched.ordering.evaluate import evaluate
from tfsched.simulator import Cluster, Method, Workload, simulate
from tfsched.simulator.pieces import decide


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
