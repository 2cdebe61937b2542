"""The reasons of an order, against TAO's literal algorithm, and the critical path as a chain without holes."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ordering import literal
from tests.ordering.dags import chain, figure_4b, random_dags
from tfsched.ordering import get, list_schedule
from tfsched.ordering.evaluate import evaluate, sent
from tfsched.ordering.layers import Layer, LayerTable, training_dag
from tfsched.ordering.oracle import times_ns
from tfsched.ordering.reasons import critical_path, reasons


@given(random_dags(), st.sampled_from(["tao", "tio", "layer", "fifo", "random"]))
@settings(max_examples=150, deadline=None)
def test_the_numbers_are_those_of_algorithm_1(dag, algorithm):
    order = reasons(dag, get(algorithm)(dag, seed=1))
    time = dict(zip((op.name for op in dag.ops), times_ns(dag), strict=True))
    dep = literal.find_dependencies(dag)
    outstanding = {op.name for op in dag.recvs}
    assert {reason.name for reason in order} == outstanding
    for reason in order:
        properties = literal.Properties(dag, dep, time, frozenset(outstanding))
        assert reason.m_us == time[reason.name] / 1000
        assert reason.p_us == properties.p[reason.name] / 1000
        plus = properties.plus[reason.name]
        assert reason.m_plus_us == (None if plus == math.inf else plus / 1000)
        outstanding.remove(reason.name)


@given(random_dags(max_ops=16, times_us=st.sampled_from([1.0, 2.0, 3.0, 7.0])))
@settings(max_examples=80, deadline=None)
def test_every_reason_is_the_comparison_with_the_next(dag):
    order = reasons(dag, get("tao")(dag))
    time = dict(zip((op.name for op in dag.ops), times_ns(dag), strict=True))
    dep = literal.find_dependencies(dag)
    outstanding = {op.name for op in dag.recvs}
    for reason, following in itertools.pairwise(order):
        properties = literal.Properties(dag, dep, time, frozenset(outstanding))
        if properties.precedes(reason.name, following.name, as_printed=False):
            assert reason.why.startswith(f"before {following.name}:")
        elif properties.precedes(following.name, reason.name, as_printed=False):
            assert reason.why.startswith(f"TAO would take {following.name} first:")
        else:
            assert reason.why == f"as good as {following.name}"
        outstanding.remove(reason.name)


def test_figure_4b_says_what_the_paper_says():
    # A and B are needed first: neither starts anything alone (P = 0), and M+ of both is 6, less than C's 9 and D's 12.
    order = reasons(figure_4b(), get("tao")(figure_4b()))
    assert {order[0].name, order[1].name} == {"A", "B"}
    assert (order[0].p_us, order[0].m_plus_us) == (0.0, 6.0)
    assert [reason.name for reason in order[2:]] == ["C", "D"]
    assert order[1].p_us == 2.0
    assert order[3].why == "the last one"


@given(random_dags(), st.sampled_from(["tao", "random"]))
@settings(max_examples=150, deadline=None)
def test_the_critical_path_is_as_long_as_the_step(dag, algorithm):
    schedule = list_schedule(dag, get(algorithm)(dag, seed=2))
    path = critical_path(dag, schedule)
    assert path[0].start_us == 0.0
    assert path[-1].end_us == schedule.makespan_us
    for one, following in itertools.pairwise(path):
        assert following.start_us == pytest.approx(one.end_us)
    assert len({step.op for step in path}) == len(path)


def test_the_path_names_what_was_waited_for():
    dag = chain(3, recv_us=10, op_us=1)
    path = critical_path(dag, list_schedule(dag, {"recv0": 0, "recv1": 1, "recv2": 2}))
    assert [(step.op, step.why) for step in path] == [
        ("recv0", "could start at once"),
        ("recv1", "waited for link0, busy with recv0"),
        ("recv2", "waited for link0, busy with recv1"),
        ("op2", "waited for its input recv2"),
    ]


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50), st.integers(0, 90_000)), min_size=1, max_size=7),
    st.sampled_from(["pace", "bytescheduler", "p3", "mg-wfbp", "prophet", "tao"]),
    st.sampled_from([0.0, 5.0]),
)
@settings(max_examples=100, deadline=None)
def test_the_path_of_cut_and_merged_transfers_has_no_overlap(rows, algorithm, startup_us):
    table = LayerTable(Layer(f"l{i}", float(f), float(b), size) for i, (f, b, size) in enumerate(rows))
    dag = training_dag(table, 1e10, startup_us)
    decision = get(algorithm)(dag)
    schedule = evaluate(dag, decision)
    path = critical_path(dag, schedule, sent(dag, decision))
    assert path[-1].end_us == pytest.approx(schedule.makespan_us)
    for one, following in itertools.pairwise(path):
        assert one.end_us <= following.start_us * (1 + 1e-9)
