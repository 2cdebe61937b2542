"""A coordinator that crosses the barrier keeps no more than stock TensorFlow would, and workers do not repeat themselves."""

import collections
import re

import pytest

from .cluster import Cluster

pytestmark = pytest.mark.timeout(300)
CROSSING = {"policy": "bytescheduler", "barrier": False}


@pytest.fixture(scope="module")
def cluster(nursery):
    with Cluster(workers=2, nursery=nursery, coordinator=True) as cluster:
        yield cluster


def test_iterators_that_were_deleted_are_gone(cluster):
    found = cluster.call("chief0", "endings.iterators", options=CROSSING, limit_s=100)
    assert found == {"made": 6, "alive": 0}


def test_drains_are_not_taken_for_one_function_that_is_traced_again(cluster):
    cluster.call("chief0", "endings.drains", options=CROSSING, limit_s=100)
    assert "retracing" not in cluster.log("chief0")


def test_a_coordinator_that_is_let_go_is_collected_with_its_threads(cluster):
    # The last one: it takes the strategy of this file's other tests with it.
    assert cluster.call("chief0", "endings.coordinator", options=CROSSING, limit_s=100) == {"collected": True, "threads": []}


def test_workers_say_nothing_of_tfsched_twice():
    # Each drain is another function, and a worker's pass sees all of them. The level is read once: by no nursery.
    with Cluster(coordinator=True, environment={"worker0": {"TF_CPP_MIN_LOG_LEVEL": "0"}}) as cluster:
        cluster.call("chief0", "endings.drains", options=CROSSING, limit_s=100)
        lines = [re.sub(r"\d+", "", line) for line in cluster.log("worker0").splitlines()]
    assert any("Started server" in line for line in lines), "nothing at this level is shown"
    said = collections.Counter(line for line in lines if "tfsched" in line.lower())
    assert not {line: times for line, times in said.items() if times > 1}
