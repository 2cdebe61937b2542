"""The space: rounded values between the bounds, and what they look like to a model."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfsched._rules import MIN_PARTITION_BYTES, POLICIES
from tfsched.errors import TfschedError
from tfsched.tuning import Setting, Space
from tfsched.tuning.space import WITHOUT_CREDIT, bytes_text, preferred, spaced

SIZES = st.integers(MIN_PARTITION_BYTES, 10**10)
BOUNDS = st.tuples(SIZES, SIZES).map(lambda pair: (min(pair), max(pair)))
POLICY_SETS = st.lists(st.sampled_from(POLICIES), min_size=1, unique=True).map(tuple)


@given(bounds=BOUNDS)
def test_values_go_from_bound_to_bound_in_even_steps(bounds):
    values = preferred(*bounds)
    assert (values[0], values[-1]) == bounds
    # Of neighbours that are not a bound, one is a quarter larger than the other, as far as rounding allows.
    assert all(1.2 < b / a < 1.3 for a, b in itertools.pairwise(values[1:-1]))
    assert all(1.1 < b / a < 1.45 for a, b in itertools.pairwise(values)) or len(values) == 2 or bounds[0] == bounds[1]


def test_values_are_round():
    assert preferred(100_000, 1_000_000) == (
        100_000, 125_000, 160_000, 200_000, 250_000, 320_000, 400_000, 500_000, 630_000, 800_000, 1_000_000,
    )  # fmt: skip


@given(bounds=BOUNDS, count=st.integers(1, 40))
def test_a_grid_has_the_bounds_and_no_value_twice(bounds, count):
    values = preferred(*bounds)
    grid = spaced(values, count)
    assert len(grid) == min(count, len(values)) and list(grid) == sorted(set(grid)) and set(grid) <= set(values)
    assert count == 1 or {values[0], values[-1]} == {grid[0], grid[-1]}


@given(partition=BOUNDS, credit=BOUNDS, policies=POLICY_SETS)
def test_settings_are_legal_and_differ(partition, credit, policies):
    space = Space(partition, credit, policies)
    assert len(set(space.settings)) == len(space.settings)
    for policy in policies:
        mine = [setting for setting in space.settings if setting.policy == policy]
        assert {setting.partition_bytes for setting in mine} == set(space.partitions)
        credits = {setting.credit_bytes for setting in mine}
        assert credits <= set(space.credits) and len(credits) == (1 if policy in WITHOUT_CREDIT else len(space.credits))
    codes = space.encode(space.settings)
    assert codes.min() >= 0 and codes.max() <= 1
    assert len(np.unique(codes, axis=0)) == len(space.settings)


@given(partition=st.integers(0, 2**40), credit=st.integers(0, 2**40), policy=st.sampled_from(POLICIES))
def test_the_nearest_setting_is_legal_and_nearest(partition, credit, policy):
    space = Space(policies=("bytescheduler", "p3"))
    found = space.nearest(Setting(partition, credit, policy))
    if policy not in space.policies:
        assert found is None
        return
    assert found in space.settings and found.policy == policy
    assert space.nearest(found) == found
    if partition:
        distance = abs(math.log(found.partition_bytes / partition))
        assert all(distance <= abs(math.log(value / partition)) + 1e-12 for value in space.partitions)
    else:
        assert found.partition_bytes == space.partitions[-1]


def test_what_lies_outside_counts_as_the_bound():
    space = Space(policies=("bytescheduler",))
    low, high = space.encode([Setting(4096, 1, "bytescheduler"), Setting(0, 0, "bytescheduler")]).tolist()
    assert (low, high) == ([0.0, 0.0], [1.0, 1.0])


@pytest.mark.parametrize("partition", [0, 500_000])
def test_pieces_that_stay_are_no_dimension(partition):
    space = Space((partition, partition), policies=("bytescheduler", "p3"))
    assert {setting.partition_bytes for setting in space.settings} == {partition}
    assert len(space.settings) == len(space.credits) + 1
    assert len(set(space.encode(space.settings)[:, 0])) == 1
    assert space.nearest(Setting(9_000_000, 2_000_000, "bytescheduler")) == Setting(partition, 2_000_000, "bytescheduler")


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"partition_bytes": (100, 1000)}, "bounds of partition_bytes are 100, 1000"),
        ({"partition_bytes": (20_000, 10_000)}, "bounds of partition_bytes are 20000, 10000"),
        ({"credit_bytes": (0, 10)}, "bounds of credit_bytes are 0, 10"),
        ({"credit_bytes": (1, 2**60)}, "bounds of credit_bytes are"),
        ({"policies": ()}, "policies to search are none"),
        ({"policies": ("p3", "p3")}, "policies to search are p3, p3"),
        ({"policies": ("lifo",)}, "policies to search are lifo; give each once, of fifo"),
    ],
)
def test_a_wrong_space_is_one_sentence(fields, wrong):
    with pytest.raises(TfschedError) as caught:
        Space(**fields)
    assert wrong in str(caught.value)


@given(size=st.integers(1, 10**12))
def test_sizes_are_written_exactly(size):
    number, unit = bytes_text(size).split()
    assert float(number) * {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}[unit] == pytest.approx(size, abs=0.5)


def test_settings_for_people():
    assert str(Setting(500_000, 1_250_000, "bytescheduler")) == "bytescheduler with pieces of 500 kB and a credit of 1.25 MB"
    assert str(Setting(0, 0, "tictac")) == "tictac with whole tensors and no limit of credit"
    assert str(Setting(200_000, 1_000_000, "p3")) == "p3 with pieces of 200 kB"
