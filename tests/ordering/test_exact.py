"""exact: equal to brute force, both solvers alike, better than every ordering; lookahead: never worse than TIO and TAO."""

from __future__ import annotations

import itertools
import math
import pathlib
import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfsched.ordering import (
    Dag,
    Decision,
    Op,
    OrderingError,
    Resource,
    _cp_sat,
    evaluate,
    get,
    list_schedule,
    lower_bound_us,
)
from tfsched.ordering._fast_schedule import FastSchedule
from tfsched.ordering.exact import SOLVERS, exact, solve

from .dags import build, chain, random_dags

ROOT = pathlib.Path(__file__).parents[2]
# CP-SAT comes with the extra `exact`; the branch and bound always.
INSTALLED = [solver for solver in SOLVERS if solver != "cp-sat" or _cp_sat.available()]
POSITIVE = st.integers(1, 9).map(float)


def model_like(draw: random.Random, recvs: int, ops: int, links: int = 1) -> Dag:
    """A layered model: each op reads one of the latest ops and, mostly, a recv of its own; some ops join two branches."""
    nodes = [Op(f"r{k}", f"link{draw.randrange(links)}", (), float(draw.randrange(1, 30))) for k in range(recvs)]
    draw.shuffle(nodes)
    names: list[str] = []
    for k in range(ops):
        inputs = set(draw.sample(names[-3:], min(len(names), draw.choice((1, 1, 2)))))
        if k < recvs:
            inputs.add(f"r{k}")
        nodes.append(Op(f"c{k}", "cpu", tuple(sorted(inputs)), float(draw.randrange(1, 30))))
        names.append(f"c{k}")
    return Dag([Resource("cpu", "compute"), *(Resource(f"link{i}", "link") for i in range(links))], nodes)


def tangled(draw: random.Random, recvs: int, ops: int) -> Dag:
    """Any op may read any recv and any of the latest twelve nodes."""
    nodes = [Op(f"r{k}", "link0", (), float(draw.randrange(1, 30))) for k in range(recvs)]
    for k in range(ops):
        inputs = set(draw.sample([op.name for op in nodes[-12:]], draw.randrange(1, 4))) | {f"r{draw.randrange(recvs)}"}
        nodes.append(Op(f"c{k}", "cpu", tuple(sorted(inputs)), float(draw.randrange(1, 30))))
    return Dag([Resource("cpu", "compute"), Resource("link0", "link")], nodes)


def brute_force(dag: Dag) -> float:
    """The shortest makespan over every order of the ops: each as early as it can after what its resource did before."""
    times = dag.times_us()
    best = math.inf
    number = len(dag.ops)

    def extend(end: dict[int, float], free: dict[str, float]) -> None:
        nonlocal best
        if len(end) == number:
            best = min(best, max(end.values()))
            return
        for i in range(number):
            if i not in end and all(j in end for j in dag.input_indices[i]):
                resource = dag.ops[i].resource
                ready = max([end[j] for j in dag.input_indices[i]], default=0.0)
                done = max(ready, free.get(resource, 0.0)) + times[i]
                if done < best:
                    extend({**end, i: done}, {**free, resource: done})

    extend({}, {})
    return best


def check(dag: Dag, solver: str, limit_s: float = 600.0) -> float:
    """The schedule is valid and as long as it says; returns its makespan if it is proven."""
    optimum = solve(dag, solver=solver, time_limit_s=limit_s)
    start = optimum.start_us
    end = {op.name: start[op.name] + t for op, t in zip(dag.ops, dag.times_us(), strict=True)}
    assert max(end.values()) == pytest.approx(optimum.makespan_us)
    for op in dag.ops:
        assert all(end[name] <= start[op.name] + 1e-6 for name in op.inputs)
    for resource in dag.resources:
        own = sorted((start[op.name], end[op.name]) for op in dag.ops if op.resource == resource)
        for (_, first), (second, last) in itertools.pairwise([o for o in own if o[1] > o[0]]):
            assert first <= second + 1e-6 <= last + 1e-6
    assert optimum.proven and optimum.gap == 0.0
    return optimum.makespan_us


@pytest.mark.parametrize("solver", INSTALLED)
def test_equals_brute_force(solver: str) -> None:
    draw = random.Random(6)
    for _ in range(60):
        links = draw.randrange(1, 3)
        nodes: list[tuple[str, str, float, str]] = []
        for k in range(draw.randrange(1, 8)):
            inputs = draw.sample(range(k), min(k, draw.randrange(0, 3)))
            where = str(draw.randrange(links)) if draw.random() < 0.5 else "cpu"
            nodes.append((f"n{k}", where, float(draw.randrange(1, 7)), " ".join(f"n{j}" for j in inputs)))
        dag = build(*nodes, links=links)
        assert check(dag, solver) == brute_force(dag)


@settings(max_examples=60, deadline=None)
@given(random_dags(max_ops=12, times_us=POSITIVE))
def test_no_ordering_is_better(dag: Dag) -> None:
    optimum = check(dag, "branch-and-bound")
    assert optimum >= lower_bound_us(dag)
    for name in ("fifo", "layer", "random", "tao", "tio", "prophet", "lookahead", "exact", "p3", "mg-wfbp"):
        decision = get(name)(dag)
        assert list_schedule(dag, decision).makespan_us >= optimum - 1e-6
    whole = Decision(get("prophet")(dag))
    assert evaluate(dag, whole).makespan_us >= optimum - 1e-6
    blocks = get("prophet")(dag)
    assert evaluate(dag, blocks).makespan_us >= optimum - 1e-6  # no start-up here, so a block gains nothing


@pytest.mark.parametrize("solver", INSTALLED)
def test_proves_20_recvs(solver: str) -> None:
    for seed in (1, 2, 3, 5, 6, 11):  # on some other seeds the branch and bound needs minutes, and CP-SAT as little as here
        dag = model_like(random.Random(seed), 20, 20, links=1 + seed % 2)
        optimum = check(dag, solver)
        for name in ("tio", "tao", "lookahead"):
            assert list_schedule(dag, get(name)(dag)).makespan_us >= optimum


def test_a_limit_leaves_a_bound_and_a_gap() -> None:
    dag = tangled(random.Random(5), 20, 40)
    nothing = solve(dag, solver="branch-and-bound", time_limit_s=0.0)
    assert not nothing.proven and nothing.bound_us < nothing.makespan_us
    assert nothing.gap == nothing.makespan_us / nothing.bound_us - 1
    assert nothing.bound_us >= lower_bound_us(dag)
    assert nothing.makespan_us <= list_schedule(dag, get("tao")(dag)).makespan_us + 1e-6


def test_a_dag_that_is_too_large_is_not_searched() -> None:
    dag = tangled(random.Random(4), 30, 1200)
    found = solve(dag, solver="branch-and-bound")
    assert not found.proven and lower_bound_us(dag) <= found.bound_us < found.makespan_us


def test_the_registered_ordering_says_what_is_known() -> None:
    dag = model_like(random.Random(1), 8, 12)
    decision = exact(dag)
    assert decision.notes["proven"] and decision.notes["gap"] == 0.0
    assert decision.notes["makespan_us"] == decision.notes["bound_us"] <= list_schedule(dag, decision).makespan_us
    assert exact(build(("c", "cpu", 1, ""))) == {}
    with pytest.raises(OrderingError, match="the solver 'oracle' is unknown or not installed; give branch-and-bound"):
        solve(dag, solver="oracle")


BESIDE_TENSORFLOW = """
import random, sys
import tensorflow as tf
import tfsched
from tests.ordering.test_exact import tangled
from tfsched.ordering.exact import solve
found = [solve(tangled(random.Random(5), 8, 12), solver=name) for name in ("cp-sat", "branch-and-bound")]
assert found[0].proven and found[0].makespan_us == found[1].makespan_us, found
assert "ortools" not in sys.modules
assert tf.function(lambda x: x + 1)(tf.constant(1)).numpy() == 2
"""


@pytest.mark.skipif(not _cp_sat.available(), reason="OR-Tools is not installed")
def test_a_process_that_has_loaded_tensorflow_can_use_the_solver() -> None:
    """Loaded behind TensorFlow, OR-Tools ends the process with a segmentation fault at its first search."""
    command = [sys.executable, "-W", "ignore", "-c", BESIDE_TENSORFLOW]
    done = subprocess.run(command, cwd=ROOT, timeout=100, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_ops_of_no_time_occupy_nothing() -> None:
    dag = build(("r", "0", 0, ""), ("a", "cpu", 5, ""), ("z", "cpu", 0, "r"), ("s", "0", 4, "z"), ("b", "cpu", 1, "s a"))
    for solver in INSTALLED:
        assert check(dag, solver) == 6.0


@settings(max_examples=100, deadline=None)
@given(random_dags(), st.randoms(use_true_random=False))
def test_the_fast_schedule_is_the_list_schedule(dag: Dag, draw: random.Random) -> None:
    fast = FastSchedule(dag)
    priorities = {op.name: float(draw.randrange(4)) for op in dag.recvs}
    order = fast.order_of(priorities)
    makespan, start = fast.forward(order)
    # In whole us, so that both add the same numbers.
    rounded = dict(zip([op.name for op in dag.ops], map(float, fast.duration), strict=True))
    schedule = list_schedule(dag, priorities, rounded)
    assert makespan == schedule.makespan_us
    assert start == [schedule.start_us[op.name] for op in dag.ops]
    path = fast.critical_path(start)
    assert start[path[-1]] + fast.duration[path[-1]] == makespan
    for first, second in itertools.pairwise(path):
        assert start[first] + fast.duration[first] == start[second]
    late = fast.backward([s + t for s, t in zip(start, fast.duration, strict=True)])
    for i, op in enumerate(dag.ops):
        assert all(late[dag.index[name]] + fast.duration[dag.index[name]] <= late[i] for name in op.inputs)
    assert fast.lower_bound() <= makespan


@settings(max_examples=60, deadline=None)
@given(random_dags())
def test_lookahead_is_never_worse_than_tio_tao_and_layer(dag: Dag) -> None:
    best = min(list_schedule(dag, get(name)(dag)).makespan_us for name in ("tio", "tao", "layer"))
    ours = get("lookahead")(dag)
    # Where it stops at its bound, which is in whole ns, the last ns of each op may differ.
    assert list_schedule(dag, ours).makespan_us <= best + 0.001 * len(dag.ops)
    assert sorted(ours.values()) == list(map(float, range(len(dag.recvs))))
    assert get("lookahead")(dag) == ours


def test_lookahead_is_better_than_tao_on_average_and_near_the_optimum() -> None:
    draw = random.Random(8)
    gaps: dict[str, list[float]] = {"tio": [], "tao": [], "lookahead": []}
    for _ in range(12):
        dag = tangled(draw, 8, 14)
        optimum = check(dag, "branch-and-bound")
        for name, gap in gaps.items():
            gap.append(list_schedule(dag, get(name)(dag)).makespan_us / optimum - 1)
    mean = {name: sum(gap) / len(gap) for name, gap in gaps.items()}
    assert mean["lookahead"] < 0.5 * min(mean["tao"], mean["tio"])


def test_lookahead_leaves_a_chain_to_tao() -> None:
    dag = chain(40)
    assert list_schedule(dag, get("lookahead")(dag)).makespan_us == 410.0 == list_schedule(dag, get("tao")(dag)).makespan_us


def test_the_bound_of_a_problem_is_below_its_optimum() -> None:
    draw = random.Random(12)
    for _ in range(30):
        dag = model_like(draw, 6, 10, links=2)
        fast = FastSchedule(dag)
        assert fast.lower_bound() <= 1000 * check(dag, "branch-and-bound")
