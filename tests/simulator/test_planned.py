"""Plans in the simulator: what they name is sent as they say, and what planners decide is sent as their plans say."""

from __future__ import annotations

import dataclasses
import random

import pytest

from tests.simulator.scenes import BPS, layers, random_layers
from tfsched._rules import BLOCK_BYTES, MIN_PARTITION_BYTES
from tfsched.ordering import Dag, Decision, Plan, exchanges, get, make_plan
from tfsched.ordering.plan import plan_of
from tfsched.simulator import Cluster, Method, Parameter, SimulatorError, Workload, profiles, simulate, workload_of_trace
from tfsched.simulator.pieces import schedule
from tfsched.simulator.simulate import make_model
from tfsched.simulator.workload import ComputeOp

CLUSTER = Cluster(bandwidth_bps=BPS, barrier=False, updates="piece")
LARGE = 40 * MIN_PARTITION_BYTES


def random_plan(draw: random.Random, workload: Workload) -> Plan:
    """Priorities of most parameters, some of them in groups, some in pieces of several sizes."""
    named = [one for one in workload.parameters if draw.random() < 0.8]
    priorities = {one.name: float(draw.randint(0, 5)) for one in named}
    sizes, pieces = {}, {}
    for one in named:
        if one.size_bytes == LARGE and draw.random() < 0.6:
            first = BLOCK_BYTES * draw.randint(MIN_PARTITION_BYTES // BLOCK_BYTES, 30 * MIN_PARTITION_BYTES // BLOCK_BYTES)
            pieces[one.name] = ((first, float(draw.randint(0, 5))), (LARGE - first, float(draw.randint(0, 5))))
        elif draw.random() < 0.5:
            sizes[one.name] = draw.choice([0, MIN_PARTITION_BYTES])
    alone = [one.name for one in named if one.name not in pieces]
    draw.shuffle(alone)
    groups = draw.choice([None, (tuple(alone[:2]), tuple(alone[2:5]))])
    return Plan("drawn", priorities, partition_bytes=sizes, pieces=pieces, groups=groups)


def test_of_pulls_with_equal_priority_the_first_in_the_forward_pass_goes_first():
    """As on the wire, where plans of mg-wfbp give all pulls one priority. The first layer's gradient is pushed last."""
    base = Workload.from_layers(layers(*[(100, 0, 1000)] * 3))
    named = tuple(dataclasses.replace(one, pushed_as=f"push/{one.name}") for one in base.parameters)
    workload = dataclasses.replace(base, parameters=named)
    priorities = {"1": 0.0, "2": 0.0, "3": 0.0, "push/2": 0.0, "push/3": 1.0, "push/1": 2.0}
    plan = Plan("given", priorities, groups=(("push/2", "push/3"),))
    result = simulate(workload, CLUSTER, Method("m", "layer", "bytescheduler", plan=plan, credit_bytes=1))
    # Pushed: 2 and 3 until 2000, 1 until 3000. Pulled: 2 until 3000, 1 until 4000, 3 until 5000; then the last layer.
    assert result.median_us == pytest.approx(5100)


@pytest.mark.parametrize("seed", range(60))
def test_every_byte_is_sent_once_in_the_plans_groups_and_pieces(seed: int) -> None:
    draw = random.Random(seed)
    table = layers(*((9, 9, draw.choice([1, 700, LARGE])) for _ in range(draw.randint(1, 9))))
    workload = Workload.from_layers(table)
    made = random_plan(draw, workload)
    architecture = draw.choice(["ps", "allreduce"])
    cluster = Cluster(workers=2, servers=draw.randint(1, 2), architecture=architecture, bandwidth_bps=BPS)
    scheduled = schedule(workload, cluster, Method("m", "layer", "bytescheduler", plan=made), 0)
    sent = dict.fromkeys(range(len(workload.parameters)), 0)
    for piece in scheduled.pieces:
        if len(piece.parameters) == 1:
            sent[piece.parameters[0]] += piece.size_bytes
    for i, one in enumerate(workload.parameters):
        mine = [piece for piece in scheduled.pieces if i in piece.parameters]
        if one.name in made.pieces:
            assert sorted((piece.size_bytes, piece.priority) for piece in mine) == sorted(made.pieces[one.name])
            assert all(piece.pull_priority == made.priorities[one.name] for piece in mine)
        if all(len(piece.parameters) == 1 for piece in mine):
            assert sent[i] == one.size_bytes
        if made.partition_bytes.get(one.name) == 0 and len(mine[0].parameters) == 1:
            assert len(mine) == 1
    together = {frozenset(workload.parameters[i].name for i in piece.parameters) for piece in scheduled.pieces}
    if made.groups is not None:
        wanted = [frozenset(group) for group in made.groups if len(group) > 1]
        assert all(len(names) == 1 or any(names <= group for group in wanted) for names in together)
        if cluster.servers == 1 or cluster.all_reduces:
            assert all(group in together for group in wanted)
    total = sum(piece.size_bytes for piece in scheduled.pieces)
    assert total == sum(one.size_bytes for one in workload.parameters)
    assert max(piece.size_bytes for piece in scheduled.pieces) <= scheduled.exchange_bytes or not cluster.all_reduces
    # What the plan does not name follows behind it.
    named = [
        piece.priority
        for piece in scheduled.pieces
        if any(workload.parameters[i].name in made.priorities for i in piece.parameters)
    ]
    rest = [
        piece.priority
        for piece in scheduled.pieces
        if not any(workload.parameters[i].name in made.priorities for i in piece.parameters)
    ]
    assert not named or not rest or max(named) < min(rest)


@pytest.mark.parametrize("algorithm", ["layer", "buckets", "mg-wfbp", "dynacomm"])
@pytest.mark.parametrize("seed", range(8))
def test_a_plan_of_the_workload_gives_the_step_of_its_ordering(algorithm: str, seed: int) -> None:
    draw = random.Random(seed)
    workload = Workload.from_layers(random_layers(draw))
    if not workload.parameters:
        workload = Workload.from_layers(layers((5, 5, 100)))
    one = Method("m", algorithm, "bytescheduler", None, 1, view="gradients")
    decided = schedule(workload, CLUSTER, one, 0)
    made = make_plan(workload.gradient_dag(CLUSTER.worker_bps(), CLUSTER.startup_us), algorithm)
    planned = schedule(workload, CLUSTER, Method("m", "layer", "bytescheduler", None, 1, plan=made), 0)
    assert [(piece.parameters, piece.size_bytes) for piece in planned.pieces] == [
        (piece.parameters, piece.size_bytes) for piece in decided.pieces
    ]
    steps = [
        simulate(workload, CLUSTER, method).median_us
        for method in (one, Method("m", "layer", "bytescheduler", None, 1, plan=made))
    ]
    assert steps[0] == pytest.approx(steps[1])


def one_way(dag: Dag) -> Plan:
    """Optimal's messages as they are: divided into pieces they are pulled piece by piece too."""
    decided = Decision.of(get("optimal")(dag))
    decided.divided_bytes = 0
    return plan_of(dag, "optimal", decided)


def with_pulls(workload: Workload, made: Plan) -> tuple[Workload, Plan]:
    """As `StepTrace.plan` has them: gradients have names of their own, and pulls the order of the forward pass."""

    def pushed(name: str) -> str:
        return f"gradient/{name}"

    parameters = tuple(dataclasses.replace(one, pushed_as=pushed(one.name)) for one in workload.parameters)
    priorities = {one.name: float(place) for place, one in enumerate(parameters)}
    return dataclasses.replace(workload, parameters=parameters), dataclasses.replace(
        made,
        priorities={**priorities, **{pushed(name): value for name, value in made.priorities.items()}},
        partition_bytes={**made.partition_bytes, **{pushed(name): size for name, size in made.partition_bytes.items()}},
        groups=None if made.groups is None else tuple(tuple(map(pushed, group)) for group in made.groups),
        pieces={pushed(name): pieces for name, pieces in made.pieces.items()},
    )


@pytest.mark.parametrize("model", ["mlp24", "resnet50", "transformer"])
def test_a_plan_for_servers_is_one_of_both_ways(model: str) -> None:
    """Where a transfer is pulled behind its push, the best messages of one way are not those of both."""
    workload = Workload.from_layers(profiles.load(model))
    ops = tuple(dataclasses.replace(op, time_us=op.time_us * 1e6 / workload.compute_us) for op in workload.ops)
    workload = dataclasses.replace(workload, ops=ops)
    bps = sum(one.size_bytes for one in workload.parameters) * 8e6 / workload.compute_us
    cluster = Cluster(bandwidth_bps=bps, startup_us=60.0, barrier=False, updates="piece")
    dag = workload.gradient_dag(bps, 60.0)
    steps_us = []
    for pushed in (True, False):
        made = make_plan(dag, "optimal", pushed=True) if pushed else one_way(dag)
        assert set(made.priorities) == {op.name for op in dag.recvs}
        traced, carried = with_pulls(workload, made)
        method = Method("m", "layer", "bytescheduler", None, 1, plan=carried)
        steps_us.append(simulate(traced, cluster, method, iterations=3).median_us)
        if pushed:
            assert made.metadata["notes"]["chosen"] == "flow"
            assert steps_us[0] == pytest.approx(made.metadata["notes"]["makespan_us"], rel=0.03)  # bytes in whole blocks
    assert steps_us[0] < 0.99 * steps_us[1]


def test_times_that_are_given_count_both_ways() -> None:
    dag = Workload.from_layers(layers((5, 5, 20_000), (5, 5, 20_000))).gradient_dag(8e9, 1.0)
    times = {op.name: 3_000.0 for op in dag.recvs}
    plans = [make_plan(dag, "optimal", given, pushed=True) for given in (None, times)]
    spans = [plan.metadata["notes"]["makespan_us"] for plan in plans]
    assert spans[0] < 100 and spans[1] > 6_000


def test_pushes_go_by_their_own_entries_and_pulls_by_theirs() -> None:
    ops = (ComputeOp("forward", 10.0), ComputeOp("backward", 10.0, ("forward",)))
    parameters = tuple(
        Parameter(f"{name}@worker", 100, ("forward",), ("backward",), pushed_as=f"grad_{name}@ps") for name in ("a", "b")
    )
    made = Plan("mine", {"a@worker": 1.0, "b@worker": 0.0, "grad_a@ps": 0.0, "grad_b@ps": 1.0})
    method = Method("m", "layer", "bytescheduler", plan=made)
    workload = Workload(ops, parameters, "train")
    scheduled = schedule(workload, CLUSTER, method, 0)
    model = make_model(workload, CLUSTER, method, scheduled, 1, 1, 0)
    order = [piece.parameters[0] for piece in scheduled.pieces]
    assert order == [0, 1]
    assert model["push_rank"] == [0, 1] and model["pull_rank"] == [1, 0]


def test_a_plan_that_is_none_is_one_sentence() -> None:
    with pytest.raises(SimulatorError, match=r"the plan of method 'm' is 'plan\.json'; give a Plan or None"):
        Method("m", plan="plan.json")  # type: ignore[arg-type]


class ExchangedTrace:
    """What `workload_of_trace` reads of a trace of all-reduces."""

    exchanges = ("some",)

    def __init__(self, gradients: list[exchanges.AllReduce]) -> None:
        self._dag = exchanges.exchange_dag(gradients)

    def receivers(self) -> list[str]:
        return ["all-reduce"]

    def dag(self, receiver: str) -> object:
        assert receiver == "all-reduce"
        return self._dag


def test_all_reduces_of_a_trace_are_a_forward_and_a_backward_chain() -> None:
    given = [
        exchanges.AllReduce("b", 8, 50.0, 20.0),
        exchanges.AllReduce("a", 4, 70.0, 5.0),
        exchanges.AllReduce("c", 2, 60.0, None),
    ]
    workload = workload_of_trace(ExchangedTrace(given))
    assert workload.compute_us == 70.0
    assert [(op.name, op.time_us) for op in workload.ops] == [
        ("begin", 5.0), ("use/a", 15.0), ("use/b", 30.0), ("ready/b", 0.0), ("ready/c", 10.0), ("ready/a", 10.0)
    ]  # fmt: skip
    assert {one.name: (one.size_bytes, one.read_by, one.made_by) for one in workload.parameters} == {
        "a": (4, ("use/a",), ("ready/a",)),
        "b": (8, ("use/b",), ("ready/b",)),
        "c": (2, (), ("ready/c",)),
    }


def test_a_profile_traced_is_simulated_as_the_profile() -> None:
    table = profiles.load("resnet50")
    direct = Workload.from_layers(table)
    at_us, needed, given = 0.0, {}, []
    for row in table:
        needed[row.name] = at_us
        at_us += row.forward_us
    for row in reversed(table.rows):
        at_us += row.backward_us
        if row.parameter_bytes:
            given.append(exchanges.AllReduce(row.name, row.parameter_bytes, at_us, needed[row.name]))
    traced = workload_of_trace(ExchangedTrace(given))
    cluster = Cluster(workers=2, architecture="allreduce", bandwidth_bps=2e9)
    for barrier in (True, False):
        method = Method("m", "layer", "bytescheduler", None, 1_000_000, barrier)
        # The last gradient's op ends the step of the trace; what a layer without parameters computes behind it is not seen.
        steps = [simulate(workload, cluster, method).median_us for workload in (direct, traced)]
        assert steps[0] == pytest.approx(steps[1], rel=0.02)


def test_a_group_is_pulled_when_all_of_it_was_pushed() -> None:
    """A server updates a variable piece by piece, but splits a group only when it has all of it."""
    size = 4 * MIN_PARTITION_BYTES
    workload = Workload.from_layers(layers((10, 10, size), (10, 10, size)))
    a, b = (one.name for one in workload.parameters)
    whole_us = 2 * size * 8e6 / BPS
    spans = []
    for groups in (None, ((a, b),)):
        sizes = {a: MIN_PARTITION_BYTES, b: MIN_PARTITION_BYTES}
        made = Plan("mine", {a: 0.0, b: 1.0}, partition_bytes=sizes, groups=groups)
        method = Method("m", "layer", "bytescheduler", None, 1, plan=made)
        spans.append(simulate(workload, CLUSTER, method, iterations=3).median_us)
    assert spans[0] < 1.5 * whole_us
    # The first op computes while the second parameter is pulled.
    assert spans[1] == pytest.approx(40 - 10 + 2 * whole_us)


@pytest.mark.parametrize("updates", ["piece", "tensor"])
def test_values_that_are_sent_ahead_leave_alone_and_only_gradients_as_one(updates: str) -> None:
    table = layers((10, 10, 3 * MIN_PARTITION_BYTES), (10, 10, 2 * MIN_PARTITION_BYTES), (10, 10, MIN_PARTITION_BYTES))
    workload = Workload.from_layers(table)
    names = [one.name for one in workload.parameters]
    sizes = {names[0]: MIN_PARTITION_BYTES, names[1]: MIN_PARTITION_BYTES, names[2]: 0}
    made = Plan("mine", dict.fromkeys(names, 0.0), partition_bytes=sizes, groups=(tuple(names),))
    method = Method("m", "layer", "bytescheduler", None, 1, plan=made)
    for barrier in (True, False):
        cluster = Cluster(bandwidth_bps=BPS, barrier=barrier, updates=updates)
        scheduled = schedule(workload, cluster, method, 0)
        together = [piece for piece in scheduled.pieces if len(piece.parameters) > 1]
        alone = [(piece.parameters, piece.size_bytes) for piece in scheduled.pieces if len(piece.parameters) == 1]
        assert sum(piece.size_bytes for piece in together) == 6 * MIN_PARTITION_BYTES
        assert {piece.only for piece in together} == {"" if barrier else "push"}
        assert alone == ([] if barrier else [((i,), MIN_PARTITION_BYTES) for i in (0, 0, 0, 1, 1, 2)])
        result = simulate(workload, cluster, method, iterations=2, warmup=1)
        assert result.pulled_bytes == result.pushed_bytes == 3 * 6 * MIN_PARTITION_BYTES
