"""The order of turns: every place, and every neighbour, equally often."""

import collections
import itertools

import pytest

from tfsched.bench.turns import turns


@pytest.mark.parametrize("count", range(1, 10))
def test_everyone_has_every_place_and_follows_everyone_equally_often(count):
    rounds = count * (1 + count % 2)
    orders = [turns(count, number) for number in range(rounds)]
    assert all(sorted(order) == list(range(count)) for order in orders)
    places = collections.Counter(place for order in orders for place in enumerate(order))
    assert set(places.values()) == {rounds // count}
    assert len(places) == count * count
    neighbours = collections.Counter(pair for order in orders for pair in itertools.pairwise(order))
    assert len(neighbours) == count * (count - 1)
    assert len(set(neighbours.values())) <= 1
