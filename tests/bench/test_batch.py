"""The search for a balanced batch, on synthetic compute times."""

import pytest

from tfsched.bench.batch import find_batch, predict


def test_predict_follows_the_line():
    assert predict({4: 0.14, 8: 0.18}, 0.5) == 40


def test_predict_from_one_point_is_proportional():
    assert predict({10: 0.1}, 0.5) == 50


def test_predict_survives_times_that_fall():
    assert 1 <= predict({4: 0.2, 8: 0.1}, 0.5) <= 4096


@pytest.mark.parametrize("constant_s", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("slope_s", [0.0005, 0.01, 0.08])
def test_finds_the_balance_of_a_line(constant_s, slope_s):
    fit = find_batch(lambda batch: constant_s + slope_s * batch, 0.8)
    assert fit.within
    assert abs(fit.compute_s / 0.8 - 1) <= 0.1
    assert fit.compute_s == fit.measured[fit.batch]


@pytest.mark.parametrize("slope_s", [0.002, 0.01, 0.09])
def test_computing_ends_just_below_communicating(slope_s):
    tried = []

    def measure(batch: int) -> float:
        tried.append(batch)
        return slope_s * batch

    fit = find_batch(measure, 4.6)
    assert 0.9 * 4.6 <= fit.compute_s <= 1.045 * 4.6
    assert fit.compute_s == pytest.approx(0.95 * 4.6, rel=0.02)
    assert slope_s * sum(tried) < 2.5 * 4.6, "the search itself takes long"


def test_the_first_batch_near_enough_ends_the_search():
    tried = []

    def measure(batch: int) -> float:
        tried.append(batch)
        return 0.25 * batch

    assert find_batch(measure, 1.1, start=4).batch == 4
    assert tried == [4]


def test_finds_the_balance_of_a_curve():
    fit = find_batch(lambda batch: 0.01 * batch**1.2, 2.0)
    assert fit.within


def test_cap_is_kept_and_told():
    tried = []

    def measure(batch: int) -> float:
        tried.append(batch)
        return 1e-5 * batch

    fit = find_batch(measure, 10.0, largest=100)
    assert fit.batch == 100
    assert not fit.within
    assert max(tried) == 100


def test_one_sample_may_already_be_too_much():
    fit = find_batch(lambda batch: 3.0 * batch, 0.5)
    assert fit.batch == 1
    assert not fit.within
