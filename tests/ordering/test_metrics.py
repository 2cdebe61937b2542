"""The metrics equal their formulae, on worked numbers and on random ones."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tfsched.ordering import (
    MetricError,
    efficiency,
    lower_bound_us,
    normalized_step_times,
    percentile,
    r_squared,
    speedup,
    straggler_effect,
    straggler_effects,
    upper_bound_us,
)

from .dags import build, figure_4b

POSITIVE = st.floats(0.001, 1e6)


def test_bounds() -> None:
    dag = figure_4b()
    assert upper_bound_us(dag) == 18.0  # 4 recvs of 3 us and 3 ops of 2 us
    assert lower_bound_us(dag) == 12.0  # the link
    two = build(("a", "0", 4, ""), ("b", "1", 5, ""), ("c", "cpu", 3, ""), links=2)
    assert (upper_bound_us(two), lower_bound_us(two)) == (12.0, 5.0)
    assert upper_bound_us(two, {"a": 10.0}) == 18.0
    assert lower_bound_us(two, {"a": 10.0}) == 10.0


def test_efficiency_and_speedup_worked() -> None:
    assert efficiency(18.0, 12.0, 12.0) == 1.0
    assert efficiency(18.0, 12.0, 18.0) == 0.0
    assert efficiency(18.0, 12.0, 14.0) == pytest.approx(2 / 3)
    assert efficiency(18.0, 12.0, 21.0) == pytest.approx(-0.5)  # worse than the bound: kept
    assert efficiency(5.0, 5.0, 7.0) == 1.0
    assert speedup(18.0, 12.0) == 0.5
    assert speedup(10.0, 5.0) == 1.0  # twice the throughput
    assert speedup(0.0, 0.0) == 0.0


@settings(max_examples=100, deadline=None)
@given(POSITIVE, POSITIVE, POSITIVE, POSITIVE)
def test_efficiency_falls_with_the_makespan(a: float, b: float, t1: float, t2: float) -> None:
    assume(a != b)
    upper, lower = max(a, b), min(a, b)
    assume(upper - lower > 1e-6 * upper and abs(t1 - t2) > 1e-6 * upper)
    assert (efficiency(upper, lower, t1) > efficiency(upper, lower, t2)) == (t1 < t2)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: efficiency(1, 2, 1), "the lower bound 2 exceeds the upper bound 1; swap them"),
        (lambda: efficiency(2, 1, -1), "the makespan is -1; give a number of zero or more"),
        (lambda: efficiency(2, float("nan"), 1), "the lower bound is nan; give a finite number"),
        (lambda: efficiency(cast(Any, "2"), 1, 1), "the upper bound is '2'; give a number"),
        (lambda: speedup(2, 0), "the lower bound is 0 and the upper 2; give op times above zero"),
        (lambda: straggler_effect([]), "there are no steps; give at least one"),
        (lambda: straggler_effect([[1.0], []]), "step 1 has no workers"),
        (
            lambda: straggler_effect([[1.0, 0.0]]),
            "finish time 1 of step 0 is 0.0; give a number ab",
        ),
        (lambda: normalized_step_times([]), "there are no step times"),
        (lambda: normalized_step_times([1.0, -1.0]), "step time 1 is -1.0; give a number above"),
        (lambda: normalized_step_times([1.0], 0.0), "the best step time is 0.0; give a number abo"),
        (lambda: r_squared([1], [1]), "x has 1 and y 1 points; give the same two or more"),
        (lambda: r_squared([1, 2], [1, 2, 3]), "x has 2 and y 3 points"),
        (lambda: r_squared([1, 1], [1, 2]), "all 2 values of x are 1; give at least two different"),
        (lambda: r_squared([1, float("inf")], [1, 2]), r"x is \[1, inf\]; give a list of finite"),
        (lambda: percentile([], 50), r"the list of values is \[\]; give a list of finite numbers"),
        (lambda: percentile([1.0], 101), "the percentile is 101; give 0 to 100"),
    ],
)
def test_error_sentences(call: Any, sentence: str) -> None:
    with pytest.raises(MetricError, match=sentence):
        call()


def test_straggler_effect() -> None:
    steps = [[1.0, 2.0, 4.0], [3.0, 3.0, 3.0], [5.0]]
    assert straggler_effects(steps) == [0.75, 0.0, 0.0]
    assert straggler_effect(steps) == 0.25


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(POSITIVE, min_size=1, max_size=5), min_size=1, max_size=5), POSITIVE)
def test_straggler_effect_is_a_share_without_unit(steps: list[list[float]], unit: float) -> None:
    effects = straggler_effects(steps)
    assert all(0.0 <= effect < 1.0 for effect in effects)
    assert all((e == 0.0) == (len(set(s)) == 1) for e, s in zip(effects, steps, strict=True))
    scaled = straggler_effects([[t * unit for t in step] for step in steps])
    assert scaled == pytest.approx(effects, abs=1e-9)


def test_normalized_step_times() -> None:
    assert normalized_step_times([2.0, 1.0, 4.0]) == [0.5, 1.0, 0.25]
    assert normalized_step_times([2.0, 4.0], best_s=1.0) == [0.5, 0.25]


def test_r_squared_worked() -> None:
    assert r_squared([1, 2, 3], [5, 3, 1]) == pytest.approx(1.0)
    assert r_squared([1, 2, 3], [7, 7, 7]) == 1.0
    assert r_squared([0, 1, 2, 3], [0, 1, 1, 0]) == pytest.approx(0.0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=3, max_size=20))
def test_r_squared_is_one_minus_residual_over_total(points: list[tuple[int, int]]) -> None:
    x, y = (np.array(values, dtype=float) for values in zip(*points, strict=True))
    assume(len(set(x)) > 1 and len(set(y)) > 1)
    slope, intercept = np.polyfit(x, y, 1)
    residual = ((y - slope * x - intercept) ** 2).sum()
    expected = 1 - residual / ((y - y.mean()) ** 2).sum()
    assert r_squared(x.tolist(), y.tolist()) == pytest.approx(expected, abs=1e-8)


def test_percentile_interpolates() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.5
    assert percentile([10.0, 20.0], 95) == pytest.approx(19.5)
    assert percentile([7.0], 95) == 7.0
