"""Methods: presets, policies, pieces and groups."""

from __future__ import annotations

import random

import pytest

from tests.simulator.scenes import BPS, forward_chain, layers, random_layers
from tfsched.ordering import OrderingError, names, register, registry
from tfsched.ordering.decision import Decision, Message, Part
from tfsched.simulator import Cluster, Method, SimulatorError, Workload, methods, simulate
from tfsched.simulator.native import policies
from tfsched.simulator.pieces import schedule, servers_of

CLUSTER = Cluster(bandwidth_bps=BPS)


@pytest.mark.parametrize("policy", policies())
def test_every_policy_of_the_core_is_known(policy: str) -> None:
    result = simulate(forward_chain(3, 10, 20), CLUSTER, Method("m", "layer", policy))
    assert result.median_us == 3 * 20 + 10


def test_the_policies_are_the_options() -> None:
    from tfsched._rules import POLICIES

    assert set(policies()) == set(POLICIES)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"policy": "lifo"}, "policy of method 'm' is 'lifo'; give one of bytescheduler, fifo, p3, prophet, tictac"),
        ({"partition_bytes": -1}, "partition_bytes of method 'm' is -1"),
        ({"credit_bytes": 1.5}, "credit_bytes of method 'm' is 1.5"),
        ({"barrier": "no"}, "barrier of method 'm' is 'no'"),
        ({"view": "both"}, "view of method 'm' is 'both'"),
    ],
)
def test_a_wrong_method_is_one_sentence(fields: dict, wrong: str) -> None:
    with pytest.raises(SimulatorError) as caught:
        Method("m", **fields)
    assert wrong in str(caught.value)


def test_an_unknown_ordering_is_one_sentence() -> None:
    with pytest.raises(OrderingError, match="ordering 'best' is unknown"):
        simulate(forward_chain(1, 1, 1), CLUSTER, Method("m", "best"))


@pytest.mark.parametrize(("field", "value"), [("iterations", 0), ("iterations", True), ("warmup", -1), ("seed", -1)])
def test_wrong_counts_are_one_sentence(field: str, value: int) -> None:
    with pytest.raises(SimulatorError, match=f"{field} is"):
        simulate(forward_chain(1, 1, 1), CLUSTER, Method("m"), **{field: value})


def test_presets() -> None:
    presets = methods()
    assert {"vanilla", "fifo", "random", "layer", "tio", "tao", "p3", "bytescheduler"} <= set(presets)
    assert set(names()) <= set(presets)
    assert all(name == method.name for name, method in presets.items())
    assert presets["bytescheduler+barrier-crossing"].barrier is False


@pytest.fixture
def backwards():
    """A user's ordering: the last layer first."""

    @register("backwards-for-a-test")
    def backwards(dag, times_us=None, *, seed=0):
        return {op.name: -float(i) for i, op in enumerate(dag.recvs)}

    yield "backwards-for-a-test"
    registry._orderings.pop("backwards-for-a-test")


def test_a_plugins_ordering_is_a_method(backwards: str) -> None:
    method = methods()[backwards]
    result = simulate(forward_chain(3, 10, 20), CLUSTER, method)
    assert result.median_us == 60 + 30
    assert result.waits_us["1"] == 60


def test_vanilla_is_another_order_in_each_step_and_the_same_for_a_seed() -> None:
    workload = forward_chain(12, 10, 20)
    one = simulate(workload, CLUSTER, methods()["vanilla"], iterations=20, seed=1)
    assert len(set(one.iteration_us)) > 5
    assert simulate(workload, CLUSTER, methods()["vanilla"], iterations=20, seed=1) == one
    assert simulate(workload, CLUSTER, methods()["vanilla"], iterations=20, seed=2).iteration_us != one.iteration_us
    assert one.median_us > simulate(workload, CLUSTER, methods()["tio"]).median_us


def test_pieces_are_even_and_keep_every_byte() -> None:
    for seed in range(100):
        draw = random.Random(seed)
        workload = Workload.from_layers(random_layers(draw))
        cluster = Cluster(servers=draw.randint(1, 3))
        most = draw.choice([0, 3, 100, 500])
        pieces = schedule(workload, cluster, Method("m", "fifo", "p3", most), 0).pieces
        for i, parameter in enumerate(workload.parameters):
            sizes = [piece.size_bytes for piece in pieces if piece.parameters == (i,)]
            assert sum(sizes) == parameter.size_bytes
            assert not most or max(sizes) <= most
            assert max(sizes) - min(sizes) <= 1
        assert sum(piece.size_bytes for piece in pieces) == sum(p.size_bytes for p in workload.parameters)


def test_groups_are_kept_on_one_server_and_every_tensor_is_in_one() -> None:
    workload = Workload.from_layers(layers(*[(1, 1, 10 * k) for k in range(1, 7)]))
    method = Method("m", "layer", groups=(("1", "2", "3", "4"), ("5", "6")))
    one = schedule(workload, Cluster(), method, 0).pieces
    assert [(piece.parameters, piece.size_bytes) for piece in one] == [((0, 1, 2, 3), 100), ((4, 5), 110)]
    two = schedule(workload, Cluster(servers=2), method, 0).pieces
    assert sorted(piece.parameters for piece in two) == [(0, 2), (1, 3), (4,), (5,)]
    cut = schedule(workload, Cluster(), Method("m", "layer", None, 60, groups=method.groups), 0).pieces
    # 100 bytes in two pieces, each with a share of every member: a fused tensor waits for all of them.
    assert [(piece.parameters, piece.size_bytes) for piece in cut][:2] == [((0, 1, 2, 3), 50)] * 2


@pytest.mark.parametrize(
    ("groups", "wrong"), [((("1", "x"),), "unknown parameter 'x'"), ((("1",), ("1",)), "in two groups")]
)
def test_a_wrong_group_is_one_sentence(groups: tuple, wrong: str) -> None:
    workload = Workload.from_layers(layers((1, 1, 1), (1, 1, 1)))
    with pytest.raises(SimulatorError, match=wrong):
        schedule(workload, Cluster(), Method("m", "layer", groups=groups), 0)


def test_a_group_leaves_when_its_last_gradient_is_made() -> None:
    workload = Workload.from_layers(layers((0, 10, 30), (0, 10, 30)))
    alone = simulate(workload, CLUSTER, Method("m", "layer", "p3"))
    grouped = simulate(workload, CLUSTER, Method("m", "layer", "p3", groups=(("1", "2"),)))
    assert alone.median_us == 60 + 10 + 60
    assert grouped.median_us == 60 + 20 + 60


def test_an_explicit_plan_is_sent_as_it_is() -> None:
    workload = Workload.from_layers(layers((1, 1, 40), (1, 1, 60)))

    @register("plan-for-a-test")
    def plan(dag, times_us=None, *, seed=0):
        parts = [Message((Part("2", 20),)), Message((Part("1", 40), Part("2", 30)))]
        return Decision({"1": 1.0, "2": 0.0}, messages=parts)

    try:
        pieces = schedule(workload, Cluster(), Method("m", "plan-for-a-test", view="gradients"), 0).pieces
    finally:
        registry._orderings.pop("plan-for-a-test")
    assert [(piece.parameters, piece.size_bytes) for piece in pieces] == [((1,), 20), ((0, 1), 70), ((1,), 10)]


def test_placement() -> None:
    workload = Workload.from_layers(layers(*[(1, 1, size) for size in (50, 10, 10, 30)]))
    assert servers_of(workload.parameters, Cluster(servers=2)) == [0, 1, 0, 1]
    assert servers_of(workload.parameters, Cluster(servers=2, placement="balanced")) == [0, 1, 1, 1]


def test_too_much_is_refused_before_it_is_tried() -> None:
    workload = Workload.from_layers(layers((1, 1, 2**50)))
    with pytest.raises(SimulatorError, match="larger partition_bytes"):
        simulate(workload, CLUSTER, Method("m", "layer", "p3", 1))


@pytest.mark.parametrize(
    ("cluster", "iterations", "wrong"),
    [
        (Cluster(workers=65536, servers=65536), 1, "connections"),
        (Cluster(workers=60000, servers=1), 1000, "would take hours"),
        (Cluster(workers=60000, servers=1), 100_000, "do not fit into memory"),
    ],
)
def test_too_large_a_cluster_is_refused(cluster: Cluster, iterations: int, wrong: str) -> None:
    with pytest.raises(SimulatorError, match=wrong):
        simulate(forward_chain(2, 1, 1), cluster, Method("m"), iterations=iterations)


def test_too_long_a_timeline_is_refused() -> None:
    with pytest.raises(SimulatorError, match="the timeline would have about"):
        simulate(forward_chain(200, 1, 1), Cluster(workers=1000), Method("m"), iterations=50, timeline=True)


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (None, "returned None"),
        ({"1": float("nan")}, "is nan"),
        ({"1": "first"}, "is 'first'"),
        (ValueError("no"), "ValueError: no"),
    ],
)
def test_an_ordering_that_answers_nonsense_is_one_sentence(answer: object, wrong: str) -> None:
    @register("nonsense-for-a-test")
    def nonsense(dag, times_us=None, *, seed=0):
        if isinstance(answer, Exception):
            raise answer
        return answer

    try:
        with pytest.raises(SimulatorError, match=wrong):
            simulate(forward_chain(2, 1, 1), CLUSTER, Method("m", "nonsense-for-a-test"))
    finally:
        registry._orderings.pop("nonsense-for-a-test")
