"""Balanced servers: the same training, even loads, and checkpoints that every placement reads."""

import pytest

from .cluster import Cluster

pytestmark = pytest.mark.timeout(300)
FIXED = {"TF_DETERMINISTIC_OPS": "1", "TF_USE_LEGACY_KERAS": "1"}


@pytest.mark.parametrize("options", [{}, {"barrier": False}], ids=["kept", "crossing"])
@pytest.mark.parametrize("way", ["in_session", "in_session_by_scope", "in_strategy"])
def test_training_is_the_same_and_servers_carry_the_same(nursery, tmp_path, way, options):
    with Cluster(nursery=nursery, ps=2, coordinator=way == "in_strategy", environment=FIXED) as cluster:
        task = "chief0" if way == "in_strategy" else "worker0"

        def train(balanced, directory):
            return cluster.call(
                task,
                f"placement.{way}",
                balanced=balanced,
                options=options,
                directory=str(tmp_path / directory),
                steps=12,
                limit_s=100,
            )

        wanted = [train(False, "in turn") for _ in range(2)]
        found = [train(balanced, "by turns") for balanced in (True, False)]  # the second goes on from what the first left
    assert [one["losses"] for one in found] == [one["losses"] for one in wanted]
    assert [one["saved"] for one in found] == [one["saved"] for one in wanted]
    even, uneven = sorted(found[0]["held"].values()), sorted(wanted[0]["held"].values())
    assert len(even) == 2 and even[1] < 1.05 * even[0]
    assert uneven[1] > 1.2 * uneven[0], "in turn they have to be uneven for the test to show anything"


def test_shards_start_with_the_rows_of_the_whole_variable(nursery):
    with Cluster(nursery=nursery, ps=2, coordinator=True, environment=FIXED) as cluster:
        (parts, cut), (one, whole) = cluster.call("chief0", "placement.first_values")
    assert (parts, one) == (3, 2)  # with the bias
    assert cut == whole
