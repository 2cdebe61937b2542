"""Each ordering on its own: the paper's figures, ties, ends, and the erratum."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tfsched.ordering import (
    Dag,
    DagError,
    Op,
    Resource,
    efficiency,
    get,
    list_schedule,
    lower_bound_us,
    names,
    upper_bound_us,
)

from . import literal
from .dags import build, chain, figure_2a, figure_4a, figure_4b, random_dags


def _e(dag: Dag, priorities: dict[str, float]) -> float:
    t_us = list_schedule(dag, priorities).makespan_us
    return efficiency(upper_bound_us(dag), lower_bound_us(dag), t_us)


def test_figure_2a() -> None:
    dag = figure_2a()
    dep = literal.find_dependencies(dag)
    assert dep["op1"] == {"recv1"} and dep["op2"] == {"recv1", "recv2"}
    # Section 4.1: recv1.P = Time(op1), recv2.P = 0, and both M+ are the sum of the two.
    time = {"recv1": 1, "recv2": 1, "op1": 1, "op2": 1}
    properties = literal.Properties(dag, dep, time, frozenset({"recv1", "recv2"}))
    assert properties.p == {"recv1": 1, "recv2": 0}
    assert properties.plus == {"recv1": 2, "recv2": 2}
    assert get("tao")(dag) == {"recv1": 0.0, "recv2": 1.0}
    assert get("tio")(dag) == {"recv1": 2.0, "recv2": 2.0}  # equal M+: the shape cannot tell
    good = list_schedule(dag, {"recv1": 0, "recv2": 1}).makespan_us
    bad = list_schedule(dag, {"recv1": 1, "recv2": 0}).makespan_us
    assert (good, bad) == (3.0, 4.0)  # figures 2b and 2c


@settings(max_examples=100, deadline=None)
@given(*[st.integers(1, 20)] * 4)
def test_figure_4_case_1(m_a: int, p_a: int, m_b: int, p_b: int) -> None:
    dag = figure_4a(m_a, p_a, m_b, p_b)
    a_first = m_a + max(p_a, m_b) + p_b  # the derivation of equation 5
    b_first = m_b + max(p_b, m_a) + p_a
    assert list_schedule(dag, {"A": 0, "B": 1}).makespan_us == a_first
    assert list_schedule(dag, {"A": 1, "B": 0}).makespan_us == b_first
    order = get("tao")(dag)
    assert list_schedule(dag, order).makespan_us == min(a_first, b_first)
    if a_first != b_first:
        assert (order["A"] < order["B"]) == (a_first < b_first)


def test_figure_4_case_2() -> None:
    dag = figure_4b()
    assert get("tio")(dag) == {"D": 4.0, "C": 3.0, "B": 2.0, "A": 2.0}
    tao = get("tao")(dag)
    assert sorted(tao, key=tao.__getitem__) == ["B", "A", "C", "D"]  # A and B tie: file order


def test_the_printed_comparator_is_an_erratum() -> None:
    # Algorithm 2 as printed takes the transfer that activates the least computation first.
    dag = chain(8)
    fixed, printed = literal.tao(dag), literal.tao(dag, as_printed=True)
    assert get("tao")(dag) == fixed
    assert _e(dag, fixed) == pytest.approx(0.875)  # the best a chain of 8 can do
    assert _e(dag, printed) == 0.0
    mean_random = sum(_e(dag, get("random")(dag, seed=s)) for s in range(20)) / 20
    assert mean_random > 0.1


def test_tio_puts_recvs_without_a_joint_consumer_last_and_is_json_safe() -> None:
    dag = build(
        ("lonely", "0", 1, ""), ("a", "0", 1, ""), ("b", "0", 1, ""), ("alone", "0", 1, ""),
        ("c", "cpu", 1, "alone"), ("d", "cpu", 1, "a b"),
    )  # fmt: skip
    assert get("tio")(dag) == {"lonely": 3.0, "a": 2.0, "b": 2.0, "alone": 3.0}
    json.dumps(get("tio")(dag), allow_nan=False)
    assert get("tio")(build(("r", "0", 1, ""))) == {"r": 1.0}


def test_several_channels_take_the_largest_channel() -> None:
    # c needs 3 recvs of one link; d needs 4, but 2 per link: d is nearer.
    dag = build(
        *[(f"c{i}", "0", 1, "") for i in range(3)], ("c", "cpu", 1, "c0 c1 c2"),
        *[(f"d{i}", str(i % 2), 1, "") for i in range(4)], ("d", "cpu", 1, "d0 d1 d2 d3"), links=2,
    )  # fmt: skip
    tio = get("tio")(dag)
    assert tio["c0"] == 3.0 and tio["d0"] == 2.0
    assert max(get("tao")(dag)[f"d{i}"] for i in range(4)) < get("tao")(dag)["c0"]


def test_fifo_layer_and_random() -> None:
    dag = figure_4b()
    assert get("fifo")(dag) == {"D": 0.0, "C": 1.0, "B": 2.0, "A": 3.0}
    # Topological order (stable by file): D C B A op1 op2 op3.
    assert get("layer")(dag) == {"D": 6.0, "C": 5.0, "B": 4.0, "A": 4.0}
    assert get("layer")(build(("r", "0", 1, ""), ("x", "cpu", 1, ""))) == {"r": 2.0}
    draws = [tuple(get("random")(dag, seed=s).values()) for s in range(30)]
    assert draws == [tuple(get("random")(dag, seed=s).values()) for s in range(30)]
    assert len(set(draws)) > 10
    assert all(sorted(draw) == [0.0, 1.0, 2.0, 3.0] for draw in draws)


def test_times_decide_tao_but_not_tio() -> None:
    dag = figure_4a(5, 5, 5, 5)
    slow_b = {"op_B": 50.0, "A": 30.0}
    assert get("tao")(dag) == {"A": 0.0, "B": 1.0}
    assert get("tao")(dag, slow_b) == {"A": 1.0, "B": 0.0}
    assert get("tio")(dag) == get("tio")(dag, slow_b)
    with pytest.raises(DagError, match="the time of op 'A' is nan"):
        get("tao")(dag, {"A": float("nan")})


@pytest.mark.parametrize("name", ["fifo", "layer", "random", "tao", "tio"])
def test_a_dag_without_recvs_needs_no_priorities(name: str) -> None:
    assert name in names()
    assert get(name)(build(("c", "cpu", 1, ""))) == {}


@settings(max_examples=60, deadline=None)
@given(random_dags(), st.randoms(use_true_random=False))
def test_names_do_not_matter_and_results_repeat(dag: Dag, draw: random.Random) -> None:
    new = [f"x{i}" for i in range(len(dag.ops))]
    draw.shuffle(new)
    rename = {op.name: new[i] for i, op in enumerate(dag.ops)}
    renamed = Dag(
        dag.resources.values(),
        [op._replace(name=rename[op.name], inputs=tuple(rename[j] for j in op.inputs)) for op in dag.ops],
    )
    for name in ("fifo", "layer", "random", "tao", "tio"):
        priorities = get(name)(dag)
        assert list(priorities) == [op.name for op in dag.recvs]
        assert {rename[k]: v for k, v in priorities.items()} == get(name)(renamed)


@settings(max_examples=60, deadline=None)
@given(random_dags(max_ops=10, times_us=st.integers(0, 9).map(float)))
def test_bounds_enclose_the_optimum_and_every_ordering(dag: Dag) -> None:
    recvs = [op.name for op in dag.recvs]
    assume(len(recvs) <= 5)
    lower, upper = lower_bound_us(dag), upper_bound_us(dag)
    optimum = min(
        list_schedule(dag, {name: p for p, name in enumerate(order)}).makespan_us for order in itertools.permutations(recvs)
    )
    assert lower <= optimum
    for name in ("fifo", "layer", "random", "tao", "tio"):
        assert optimum <= list_schedule(dag, get(name)(dag)).makespan_us <= upper


def test_tao_and_tio_beat_random_on_a_training_like_dag() -> None:
    draw = random.Random(0)
    recvs = [Op(f"r{k}", "l", (), float(draw.randrange(5, 60))) for k in range(40)]
    draw.shuffle(recvs)
    ops: list[Op] = []
    for k in range(40):
        inputs = (f"r{k}", f"c{k - 1}") if k else ("r0",)
        ops.append(Op(f"c{k}", "cpu", inputs, float(draw.randrange(5, 60))))
    dag = Dag([Resource("cpu", "compute"), Resource("l", "link")], recvs + ops)
    by_chance = [_e(dag, get("random")(dag, seed=s)) for s in range(20)]
    assert _e(dag, get("tao")(dag)) > 0.9 > max(by_chance)
    assert _e(dag, get("tio")(dag)) > 0.9
