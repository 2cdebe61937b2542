"""What workers do for groups that are all-reduced: joining gradients takes time before the exchange, splitting after it."""

from __future__ import annotations

import dataclasses
import random

import pytest

from tests.simulator.scenes import BPS, layers
from tfsched.ordering import Plan
from tfsched.simulator import Cluster, Method, Parameter, Result, Workload, simulate
from tfsched.simulator.cutting import Piece
from tfsched.simulator.joining import with_joins

# Two workers: a direct exchange sends each byte once, and one byte takes one µs. Joining takes as long as sending.
CLUSTER = Cluster(workers=2, architecture="allreduce", algorithm="direct", bandwidth_bps=BPS, join_us_per_mb=1e6)
THREE = Workload.from_layers(layers((10, 20, 640), (10, 20, 1280), (10, 20, 1920)))


def grouped(*groups: tuple[str, ...], barrier: bool = True) -> Method:
    """All that is in no group leaves alone, the first layer's first."""
    plan = Plan("given", {str(i): float(i) for i in (1, 2, 3)}, groups=groups)
    return Method("grouped", "layer", "bytescheduler", plan=plan, barrier=barrier, credit_bytes=10**6)


def step_us(method: Method, cluster: Cluster = CLUSTER, workload: Workload = THREE) -> float:
    return simulate(workload, cluster, method, iterations=3, warmup=3).median_us


def test_a_group_of_all_is_joined_before_it_leaves_and_split_before_the_next_step():
    free = CLUSTER.replace(join_us_per_mb=0)
    everything = grouped(("1", "2", "3"))
    assert step_us(everything, free) == pytest.approx(90 + 3840)
    assert step_us(everything) == pytest.approx(90 + 3840 + 2 * 3840)
    # Across the barrier nothing can begin sooner: the first layer's value comes with all others.
    assert step_us(grouped(("1", "2", "3"), barrier=False)) == pytest.approx(90 + 3840 + 2 * 3840)


def test_a_group_is_joined_behind_what_is_computed_meanwhile():
    # Backward: 3, 2, then 20 of 1 and 3200 of joining 2 and 3. 1 has left meanwhile; then the group leaves, and is split.
    of_two = grouped(("2", "3"))
    assert step_us(of_two, CLUSTER.replace(join_us_per_mb=0)) == pytest.approx(30 + 40 + 3200 + 640)
    assert step_us(of_two) == pytest.approx(30 + 40 + 20 + 3200 + 3200 + 3200)


def test_a_join_waits_for_whole_ops_that_take_as_long_as_it_does():
    workload = Workload.from_layers(layers(*((10, 20, 640) for _ in range(6))))
    pieces = [Piece((5, 4), 1280, 0, "p", 0.0)]

    def position(time_us):
        joined = with_joins(workload, pieces, time_us / 1280 * 1e6)
        (name,) = joined.parameters[5].made_by
        return [op.name for op in joined.ops].index(name) - joined.index["backward/5"]

    # An op of 20 is over before a join of less; two are over before one of more.
    assert [position(time_us) for time_us in (1, 19, 21, 1000)] == [2, 2, 3, 5]


def test_what_leaves_alone_is_not_joined():
    assert step_us(grouped()) == step_us(grouped(), CLUSTER.replace(join_us_per_mb=0))
    servers = Cluster(bandwidth_bps=BPS, join_us_per_mb=1e6)
    assert step_us(grouped(("1", "2"), ("3",)), servers) == step_us(grouped(("1", "2"), ("3",)), Cluster(bandwidth_bps=BPS))


def test_the_work_has_names_in_the_timeline():
    result: Result = simulate(THREE, CLUSTER, grouped(("1", "2")), iterations=1, warmup=0, timeline=True)
    spans = {span.op: span for span in result.events if span.resource == "w0/compute"}
    join, split = spans["join 0: 1 and 1 more"], spans["split 0: 1 and 1 more"]
    assert join.end_us - join.start_us == split.end_us - split.start_us == pytest.approx(1920)
    assert join.start_us == spans["backward/1"].end_us


def test_parts_of_a_parameter_in_different_messages_are_left_as_they_are():
    pieces = [Piece(members, 100, 0, "p", 0.0) for members in ((0, 1), (1, 2))]
    assert with_joins(THREE, pieces, 1e6) is THREE


@pytest.mark.parametrize("seed", range(40))
def test_the_same_is_read_and_made_with_joins_and_without(seed):
    draw = random.Random(seed)
    count = draw.randint(2, 9)
    workload = Workload.from_layers(layers(*((draw.randint(0, 9), draw.randint(0, 9), 640) for _ in range(count))))
    more = (
        Parameter("unread", 64, (), workload.parameters[0].made_by),
        Parameter("unmade", 64, workload.parameters[0].read_by),
    )
    ops = (*workload.ops, dataclasses.replace(workload.ops[0], name="join 0: 1 and 1 more", inputs=()))
    workload = dataclasses.replace(workload, ops=ops, parameters=(*workload.parameters, *more))
    order = list(range(len(workload.parameters)))
    draw.shuffle(order)
    size = draw.randint(1, 4)
    pieces = [Piece(tuple(order[i : i + size]), 64 * size, 0, "p", 0.0) for i in range(0, len(order), size)]
    joined = with_joins(workload, pieces, 1.0)
    times = {op.name: op.time_us for op in workload.ops}
    inputs = {op.name: op.inputs for op in joined.ops}
    assert {op.name: op.time_us for op in joined.ops if op.name in times} == times
    extra = [op for op in joined.ops if op.name not in times]
    groups = [piece for piece in pieces if len(piece.parameters) > 1 and any(order_made(workload, piece))]
    assert len(extra) == 2 * len(groups)
    for piece in pieces:
        for i in piece.parameters:
            before, after = workload.parameters[i], joined.parameters[i]
            assert (after.name, after.size_bytes) == (before.name, before.size_bytes)
            if piece not in groups:
                assert after == before
                continue
            (join,), (split,) = after.made_by, after.read_by
            assert set(before.made_by) <= set(inputs[join]) and inputs[split] == ()
            assert all(split in inputs[reader] for reader in before.read_by)


def order_made(workload: Workload, piece: Piece) -> list[bool]:
    return [bool(workload.parameters[i].made_by) for i in piece.parameters]
