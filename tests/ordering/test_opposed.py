"""Gradients that are not opposed become ones that are, and few bytes change."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tfsched.ordering import AllReduce, exchange_dag, make_plan
from tfsched.ordering._explicit import opposed
from tfsched.ordering.chain import Gradient, is_opposed

GRADIENTS = st.lists(st.builds(Gradient, st.integers(0, 6), st.integers(0, 9), st.integers(0, 6)), max_size=7)


@given(GRADIENTS)
def test_the_result_is_opposed_and_nothing_became_easier(gradients: list[Gradient]) -> None:
    result = opposed(gradients)
    assert sorted(position for position, _ in result) == list(range(len(gradients)))
    assert is_opposed([gradient for _, gradient in result])
    for position, gradient in result:
        before = gradients[position]
        assert gradient.release >= before.release and gradient.tail >= before.tail and gradient.wire == before.wire


@given(GRADIENTS)
def test_the_bytes_that_stay_as_they_are_are_as_many_as_can_be(gradients: list[Gradient]) -> None:
    same = sum(gradient.wire + 1 for position, gradient in opposed(gradients) if gradient == gradients[position])
    most = 0
    for count in range(len(gradients) + 1):
        for chosen in itertools.combinations(gradients, count):
            if is_opposed(sorted(chosen)):
                most = max(most, sum(one.wire + 1 for one in chosen))
    assert same >= most


def test_what_is_made_first_and_needed_first_does_not_make_all_others_urgent() -> None:
    layers = [Gradient(10 * place, 1000, 5 * place) for place in range(6)]
    statistics = [Gradient(0, 1, 25), Gradient(0, 1, 20)]
    result = opposed([*statistics, *layers])
    assert [gradient for position, gradient in result if position >= 2] == layers
    assert [gradient for position, gradient in result if position < 2] == [Gradient(30, 1, 20), Gradient(40, 1, 25)]


def test_statistics_of_the_forward_pass_lengthen_no_plan() -> None:
    """They are made at its beginning, needed at the next one's, and have hardly any bytes."""
    layers = 12
    gradients = [
        AllReduce(f"g{layer}", 2_000_000, ready_us=2.4e5 + 4e4 * (layers - layer), needed_us=2e4 * layer)
        for layer in range(layers)
    ]
    statistics = [AllReduce(f"s{layer}", 64, ready_us=2e4 * layer, needed_us=2e4 * layer) for layer in range(layers)]
    # A step begins with the statistics; a gradient that is not sent keeps the time of the first one the same.
    start = AllReduce("start", 0, ready_us=0.0, needed_us=2e4 * layers)
    spans = []
    for sent in ([start, *gradients], [start, *gradients, *statistics]):
        plan = make_plan(exchange_dag(sent, 4e8, 100.0), "optimal", pushed=True)
        spans.append(plan.metadata["notes"]["makespan_us"])
    assert spans[1] <= 1.002 * spans[0]
