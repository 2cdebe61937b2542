"""Time oracles: the minimum of traced steps, the general oracle, whole nanoseconds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfsched.ordering import DagError, OracleError, TimeOracle, general_time
from tfsched.ordering.oracle import times_ns

from .dags import build, figure_2a

STEPS = st.lists(st.dictionaries(st.sampled_from("abc"), st.floats(0, 1e6)), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_time_is_the_minimum_over_steps(steps: list[dict[str, float]]) -> None:
    oracle = TimeOracle.from_steps(iter(steps))
    for name in "abc":
        measured = [step[name] for step in steps if name in step]
        assert oracle.time_us(name, -1.0) == (min(measured) if measured else -1.0)
        assert (name in oracle) == bool(measured)


def test_apply_falls_back_to_the_dags_own_time() -> None:
    dag = figure_2a()
    times = TimeOracle.from_steps([{"op1": 5.0, "other": 1.0}, {"op1": 4.0}]).apply(dag)
    assert times == {"recv1": 1.0, "recv2": 1.0, "op1": 4.0, "op2": 1.0}


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        ([], "there are no traced steps"),
        ([{"a": 1.0}, {"a": -1.0}], "the time of op 'a' in step 1 is -1.0; give a number of zero"),
        ([{"a": float("nan")}], "the time of op 'a' in step 0 is nan; give a finite number"),
        ([{"a": float("inf")}], "is inf; give a finite number"),
        ([{"a": True}], "is True; give a number"),
        ([{"a": "1"}], "is '1'; give a number"),
        ([{1: 1.0}], "an op's name in the times in step 0 is 1; give a non-empty string"),
        ([[1.0]], r"the times in step 0 are \[1.0\]; give op name"),
    ],
)
def test_error_sentences(steps: Any, sentence: str) -> None:
    with pytest.raises(OracleError, match=sentence):
        TimeOracle.from_steps(steps)


def test_an_op_never_measured_needs_a_default() -> None:
    with pytest.raises(OracleError, match="op 'x' was never measured; trace it or give a default"):
        TimeOracle({"a": 1.0}).time_us("x")


def test_general_oracle_is_equation_6() -> None:
    assert general_time(figure_2a()) == {"recv1": 1.0, "recv2": 1.0, "op1": 0.0, "op2": 0.0}


def test_times_are_rounded_to_nanoseconds_and_bounded() -> None:
    dag = build(("r", "0", 0.0014, ""), ("c", "cpu", 0.0016, "r"))
    assert times_ns(dag) == [1, 2]
    with pytest.raises(DagError, match=r"more than 2\^62 ns \(op 'c' alone 1e\+300 us\)"):
        times_ns(dag, {"c": 1e300})
