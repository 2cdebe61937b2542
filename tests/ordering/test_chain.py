"""The optimum of a training step's chain: against every schedule, CP-SAT, the simulator's model and every planner."""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
import random
import subprocess
import sys

import pytest

from tests.simulator.test_planners import FAST_BPS, drawn_large
from tfsched.ordering import Dag, Decision, Op, Resource, evaluate, get
from tfsched.ordering.chain import Gradient, best_cuts, fill, is_opposed, value
from tfsched.ordering.dear import in_halves
from tfsched.ordering.layers import training_dag
from tfsched.ordering.optimal import RIVALS, TOLERANCE, lower_bound_us
from tfsched.simulator import Method, profiles, simulate
from tfsched.simulator.pieces import decide

from .chain_oracles import all_cuts, all_schedules, draw_chain
from .dags import random_dags
from .test_pace import training_chain

ROOT = pathlib.Path(__file__).parents[2]


def large(dag: Dag) -> Dag:
    """The same times with sizes of up to a megabyte: a byte is little of a message."""
    ops = [op._replace(size_bytes=100_000 * op.size_bytes) if op.size_bytes else op for op in dag.ops]
    return Dag([dag.resources["cpu"], dag.resources["net"]._replace(bandwidth_bps=8e11)], ops)


def carried_out(gradients: list[Gradient], startup: int) -> int:
    """The makespan of the filled slots, which are checked to be a schedule."""
    slots = fill(gradients, startup, best_cuts(gradients, startup))
    sent, completed, now = [0] * len(gradients), [0] * len(gradients), 0
    for slot in slots:
        assert slot.start >= now and slot.end - slot.start == startup + sum(time for _, time in slot.parts)
        now = slot.end
        for i, time in slot.parts:
            assert gradients[i].release <= slot.start
            sent[i] += time
            completed[i] = slot.end
    assert sent == [gradient.wire for gradient in gradients]
    return max(end + gradient.tail for end, gradient in zip(completed, gradients, strict=True))


def test_the_optimum_equals_every_schedule_in_whole_units() -> None:
    draw = random.Random(1)
    for _ in range(200):
        chain, startup = draw_chain(draw, 3, draw.choice((4, 8, 14)), 3), draw.randrange(4)
        cuts = best_cuts(chain, startup)
        assert cuts.makespan == all_schedules(chain, startup), (chain, startup)
        assert cuts.makespan == value(chain, startup, cuts.left, cuts.right)
        assert carried_out(chain, startup) <= cuts.makespan


def test_the_optimum_equals_the_formula_over_all_cuts() -> None:
    draw = random.Random(2)
    for _ in range(300):
        chain, startup = draw_chain(draw, 6, draw.choice((8, 40, 100)), 20), draw.randrange(12)
        assert best_cuts(chain, startup).makespan == all_cuts(chain, startup), (chain, startup)
        assert carried_out(chain, startup) <= best_cuts(chain, startup).makespan


def test_the_optimum_equals_cp_sat() -> None:
    """In a process of its own: OR-tools ends one that has loaded TensorFlow with a segmentation fault."""
    if importlib.util.find_spec("ortools") is None:  # imported here it would be loaded beside TensorFlow
        pytest.skip("OR-tools is not installed")
    program = (
        "import random\n"
        "from tests.ordering.chain_oracles import cp_sat, draw_chain\n"
        "from tfsched.ordering.chain import best_cuts\n"
        "draw = random.Random(3)\n"
        "for _ in range(8):\n"
        "    chain, startup = draw_chain(draw, 4, 14, 5), draw.randrange(4)\n"
        "    assert best_cuts(chain, startup).makespan == cp_sat(chain, startup), (chain, startup)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, timeout=100, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_without_a_startup_it_is_the_preemptive_optimum_and_a_dear_one_sends_one_message() -> None:
    chain = [Gradient(0, 5, 0), Gradient(4, 3, 2), Gradient(6, 2, 9)]
    assert best_cuts(chain, 0).makespan == 17  # the last gradient goes at once, from 6 to 8
    assert len(fill(chain, 100, best_cuts(chain, 100))) == 1


def test_what_is_not_opposed_is_refused() -> None:
    assert not is_opposed([Gradient(0, 1, 5), Gradient(1, 1, 4)])
    with pytest.raises(ValueError, match="ascend together"):
        best_cuts([Gradient(0, 1, 5), Gradient(1, 1, 4)], 1)
    with pytest.raises(ValueError, match="at least one"):
        best_cuts([], 1)


def test_the_formula_needs_opposed_gradients() -> None:
    """docs/optimal.md, limits: the smallest case in which tails raised until they ascend cost something."""
    swapped = [Gradient(0, 1, 1), Gradient(1, 1, 0)]
    raised = [Gradient(0, 1, 1), Gradient(1, 1, 1)]
    assert best_cuts(raised, 0).makespan == 3
    assert all_schedules(swapped, 0) == 2


def test_optimal_is_proven_on_chains_and_never_worse_than_any_planner() -> None:
    draw = random.Random(4)
    for number in range(24):
        dag = large(training_chain(draw, draw.randrange(1, 12), startup_us=(0.0, 2.0, 8.0, 40.0)[number % 4]))
        plan = get("optimal")(dag)
        assert isinstance(plan, Decision)
        span_us = evaluate(dag, plan).makespan_us
        assert plan.notes["proven"] and plan.notes["makespan_us"] == span_us
        paced = Decision.of(get("pace")(dag))
        for rival in [*(get(name)(dag) for name in RIVALS), paced, Decision(paced, messages=paced.messages)]:
            assert span_us <= evaluate(dag, rival).makespan_us * (1 + TOLERANCE)


@pytest.mark.parametrize("model", ["alexnet_v2", "mlp24", "resnet18", "seq32", "vgg16"])
def test_optimal_is_proven_on_models(model: str) -> None:
    for gbps in (1, 10):
        dag = training_dag(profiles.load(model), gbps * 1e9, 300.0)
        plan = get("optimal")(dag)
        assert isinstance(plan, Decision) and plan.notes["proven"] and plan.notes["chosen"] == "cuts"
        for name in ("us-byte", "buckets"):
            assert plan.notes["makespan_us"] <= evaluate(dag, get(name)(dag)).makespan_us * (1 + TOLERANCE)


def test_elsewhere_it_is_never_worse_than_its_rivals_nor_below_its_bound() -> None:
    from hypothesis import given, settings
    from hypothesis import strategies as st

    @settings(max_examples=40, deadline=None)
    @given(random_dags(max_ops=14), st.floats(0, 3))
    def hold(dag: Dag, startup_us: float) -> None:
        dag = Dag([r._replace(startup_us=startup_us) if r.kind == "link" else r for r in dag.resources.values()], dag.ops)
        plan = get("optimal")(dag)
        assert isinstance(plan, Decision)
        span_us = evaluate(dag, plan).makespan_us
        for name in RIVALS:
            rival_us = evaluate(dag, get(name)(dag)).makespan_us
            assert span_us <= rival_us * (1 + TOLERANCE) + 0.01
            assert lower_bound_us(dag) <= rival_us + 0.01  # whole ns of each op
        assert plan.notes["bound_us"] == lower_bound_us(dag)

    hold()


@pytest.mark.parametrize("name", ["optimal", "us-byte", "dynacomm"])
def test_the_simulated_step_is_the_planned_one(name: str) -> None:
    for seed in range(20):
        workload, cluster = drawn_large(random.Random(seed))
        # A tensor's part is used when its message is there, as across tfsched's barrier: with "tensor", a message that
        # carries the end of one tensor and the beginning of another would be there with the latter's end.
        cluster = dataclasses.replace(cluster, updates="piece")
        method = Method("m", name, view="gradients")
        decision = decide(workload, cluster, method, 0)
        assert decision is not None and not decision.preemptive
        expected_us = evaluate(workload.gradient_dag(FAST_BPS, 2 * cluster.startup_us), decision).makespan_us
        assert simulate(workload, cluster, method, iterations=2).median_us == pytest.approx(expected_us, rel=1e-6), seed


def test_dear_in_halves_takes_the_time_of_whole_all_reduces() -> None:
    ops = [Op("b", "cpu", (), 4.0), Op("x", "net", ("b",), None, 6), Op("f", "cpu", ("x",), 2.0)]
    dag = Dag([Resource("cpu", "compute"), Resource("net", "link", 8e6, 10.0)], ops)
    halved, plan = in_halves(dag, 100)
    assert evaluate(halved, plan).makespan_us == evaluate(dag, get("layer")(dag)).makespan_us == 22.0
    ops[1:2] = [Op("x", "net", ("b",), None, 6), Op("y", "net", ("b",), None, 6)]
    two = Dag(list(dag.resources.values()), [*ops[:-1], Op("f", "cpu", ("x", "y"), 2.0)])
    assert evaluate(*in_halves(two, 100)).makespan_us == 28.0  # one start-up in each half
    assert evaluate(*in_halves(two, 6)).makespan_us == 38.0  # two
