"""evaluate(): equal to the list schedule where it must be, and pieces, groups, credit and preemption by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfsched.ordering import Dag, Decision, Message, Op, OrderingError, Part, Resource, evaluate, get, list_schedule
from tfsched.ordering.evaluate import sent

from .dags import build, random_dags


def training(startup_us: float = 0.0) -> Dag:
    """Backward 2, 1, 0, each 2 us; gradients of 8, 4 and 2 us (1 byte a us); forward 0, 1, 2, each 1 us."""
    ops = []
    for k, size in ((2, 8), (1, 4), (0, 2)):
        ops.append(Op(f"b{k}", "cpu", () if k == 2 else (f"b{k + 1}",), 2.0))
        ops.append(Op(f"g{k}", "net", (f"b{k}",), None, size))
    for k in range(3):
        ops.append(Op(f"f{k}", "cpu", (f"g{k}",) + ((f"f{k - 1}",) if k else ("b0",)), 1.0))
    return Dag([Resource("cpu", "compute"), Resource("net", "link", 8e6, startup_us)], ops)


@settings(max_examples=200, deadline=None)
@given(random_dags(), st.sampled_from(["fifo", "tio", "tao", "layer", "random"]))
def test_whole_recvs_are_the_list_schedule(dag: Dag, name: str) -> None:
    priorities = get(name)(dag)
    assert evaluate(dag, priorities) == list_schedule(dag, priorities)


PRIORITY = {"g0": 0.0, "g1": 1.0, "g2": 2.0}


def test_no_preemption() -> None:
    # g2 2..10, then g0 10..12, g1 12..16; f2 waits for f1 at 17.
    schedule = evaluate(training(), PRIORITY)
    assert [schedule.end_us[name] for name in ("g2", "g0", "g1", "f2")] == [10, 12, 16, 18]


def test_preemption() -> None:
    # g2 2..4, g1 4..6, g0 6..8, g1 8..10, g2 10..16.
    dag, decision = training(), Decision(PRIORITY, preemptive=True)
    schedule = evaluate(dag, decision)
    assert [schedule.end_us[name] for name in ("g0", "g1", "g2", "f2")] == [8, 10, 16, 17]
    assert schedule.start_us["g2"] == 2.0
    assert [(s.recvs[0], s.start_us, s.end_us) for s in sent(dag, decision)] == [
        ("g2", 2, 4), ("g1", 4, 6), ("g0", 6, 8), ("g1", 8, 10), ("g2", 10, 16)
    ]  # fmt: skip


def test_each_stretch_of_a_cut_message_pays_a_startup() -> None:
    # g2 2..4 (1 of 8), g1 4..6 (1 of 4), g0 6..9, g1 9..13, g2 13..21.
    schedule = evaluate(training(1.0), Decision(PRIORITY, preemptive=True))
    assert [schedule.end_us[name] for name in ("g0", "g1", "g2")] == [9, 13, 21]


def test_pieces() -> None:
    # At most 3, as even as can be: 2, 3, 3 of g2 and 2, 2 of g1. g2 2..4, then g1 (ready at 4) 4..6, g0 6..8, g1 8..10, g2.
    schedule = evaluate(training(), Decision(PRIORITY, partition_bytes=3))
    assert [schedule.end_us[name] for name in ("g0", "g1", "g2")] == [8, 10, 16]
    # A start-up for each of 3 + 2 + 1 pieces.
    assert evaluate(training(1.0), Decision(PRIORITY, partition_bytes=3)).end_us["g2"] == 2 + 14 + 6


def test_groups_pay_one_startup_and_wait_for_the_last() -> None:
    schedule = evaluate(training(1.0), Decision(PRIORITY, groups=[("g2", "g1")]))
    # g1 is ready at 4: both 4..17, then g0 17..20.
    assert schedule.start_us["g2"] == schedule.start_us["g1"] == 4.0
    assert [schedule.end_us[name] for name in ("g1", "g2", "g0")] == [17, 17, 20]


def test_a_large_group_leaves_in_pieces_that_carry_a_share_of_each() -> None:
    # g2 and g1, 12 bytes, ready at 4: a third of them 4..9; then g0 (ready at 6) 9..12, 12..17, 17..22.
    schedule = evaluate(training(1.0), Decision(PRIORITY | {"g1": 2.0}, groups=[("g2", "g1")], partition_bytes=5))
    assert [schedule.end_us[name] for name in ("g0", "g1", "g2")] == [12, 22, 22]


def test_what_is_handed_over_is_not_overtaken() -> None:
    # Credit of two pieces of 4: g2's both go to the wire at 2, so g1 has to wait; g0 (ready at 6) fits in.
    dag = training()
    schedule = evaluate(dag, Decision(PRIORITY, partition_bytes=4, credit_bytes=8))
    assert schedule.end_us["g2"] == 10.0
    assert sorted((schedule.end_us["g0"], schedule.end_us["g1"])) == [12.0, 16.0]
    whole = evaluate(dag, Decision(PRIORITY, credit_bytes=1))  # nothing fits: one at a time
    assert whole == evaluate(dag, PRIORITY)


def test_explicit_messages() -> None:
    plan = [
        Message((Part("g0", 2), Part("g1", 2)), not_before_us=7.0),
        Message((Part("g2", 3),)),
        Message((Part("g1", 2),)),
        Message((Part("g2", 5),)),
    ]
    # g2's first 3: 2..5; the next of the plan that is ready is g1's half 5..7; g0 with g1's other half 7..11; g2 11..16.
    schedule = evaluate(training(), Decision(PRIORITY, messages=plan))
    assert [schedule.end_us[name] for name in ("g0", "g1", "g2")] == [11, 11, 16]
    with pytest.raises(OrderingError, match="the messages send 3 bytes of 'g2', which has 8; send all"):
        evaluate(training(), Decision(PRIORITY, messages=plan[:3]))


@settings(max_examples=100, deadline=None)
@given(random_dags(recv_inputs=True), st.integers(1, 300), st.integers(0, 600), st.booleans())
def test_without_startup_no_work_appears_or_is_lost(dag: Dag, unit: int, credit: int, preemptive: bool) -> None:
    decision = Decision(get("tio")(dag), partition_bytes=unit, credit_bytes=credit, preemptive=preemptive)
    schedule = evaluate(dag, decision)
    total: dict[str, float] = {}
    for s in sent(dag, decision):
        total[s.link] = total.get(s.link, 0.0) + s.end_us - s.start_us
    for link, time_us in total.items():
        own = sum(t for op, t in zip(dag.ops, dag.times_us(), strict=True) if op.resource == link)
        assert math.isclose(time_us, own, rel_tol=1e-9, abs_tol=1e-3)
    for op in dag.ops:
        assert all(schedule.end_us[name] <= schedule.start_us[op.name] + 1e-9 for name in op.inputs)


@pytest.mark.parametrize(
    ("decision", "sentence"),
    [
        (lambda: Decision({"a": 0, "b": 1}, groups=[("a", "b")]), "over the links 'link0', 'link1'; send one per link"),
        (lambda: Decision({"a": 0, "d": 1}, groups=[("a", "d")]), "op 'a' never runs: a message waits for a recv"),
        (lambda: Decision({"a": 0, "x": 1}, groups=[("x",)]), "sends 'x', which is no recv of the dag"),
        (lambda: Decision({"a": 0}, groups=[("a", "b")]), "'b' is in a group and has no priority"),
        (lambda: Decision({"a": 0, "b": 0}, groups=[("a",), ("a", "b")]), "'a' is grouped twice"),
        (lambda: Decision({"a": 0}, partition_bytes=-1), "partition_bytes is -1; give a number of zero or more"),
        (lambda: Decision({"a": 0}, policy="best"), "the policy is 'best'; give one of fifo, tictac"),
        (lambda: Decision({"a": 0}, messages=[Message(())]), "message 0 of the decision is empty"),
    ],
)  # fmt: skip
def test_error_sentences(decision: object, sentence: str) -> None:
    dag = build(("a", "0", 1, ""), ("b", "1", 1, ""), ("c", "cpu", 1, "a"), ("d", "0", 1, "c"), links=2)
    with pytest.raises(OrderingError, match=sentence):
        evaluate(dag, decision())  # type: ignore[operator]
