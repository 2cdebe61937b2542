"""Two builds of tfsched in one cluster: they step aside for each other, say so once, and train as stock TensorFlow does."""

import re

import pytest

from .cluster import STOCK, Cluster
from .other_build import build

pytestmark = pytest.mark.timeout(300)
STEPS = 4
LINE = " of tfsched and this process runs "
# The nursery's, so that all processes compute with the same kernels.
FIXED = {"TF_ENABLE_ONEDNN_OPTS": "0"}


@pytest.fixture(scope="module")
def stock_losses(nursery):
    """What a cluster without tfsched computes."""
    with Cluster(nursery=nursery, protocol=STOCK) as cluster:
        cluster.call("worker0", "common.open_session")
        return cluster.call("worker0", "common.run", count=STEPS)


# The pass of the other build knows nothing of its own attribute, so where it runs the attribute has a default.
@pytest.mark.parametrize(
    ("other", "same", "more"), [("ps0", "worker0", "weight: int"), ("worker0", "ps0", "weight: int = 1")]
)
def test_builds_that_differ_step_aside(tmp_path, stock_losses, other, same, more):
    # Programs of their own: a forked task has the library of its nursery.
    environment = {other: {**FIXED, "TFSCHED_LIBRARY": build(tmp_path, more)}, same: FIXED}
    with Cluster(environment=environment) as cluster:
        for options in ({}, {"barrier": False}, {"policy": "bytescheduler", "partition_bytes": 1 << 14}):
            cluster.call("worker0", "common.open_session", options=options)
            assert cluster.call("worker0", "common.run", count=STEPS) == stock_losses, options
            cluster.call("worker0", "common.close_session")
        stats = {name: cluster.wait_idle(name) for name in (other, same)}
        assert stats["ps0"]["tasks"] == 0  # the master is worker0's
        assert stats["ps0"]["bypassed_tasks"] > 0
        assert stats["worker0"]["background_calls"] == 0
        said = [line for line in cluster.log("worker0").splitlines() if LINE in line]
        assert len(said) == 1, cluster.log("worker0")
        assert re.search(r"/job:ps/replica:0/task:0 runs build \d+-[0-9a-f]{16}", said[0])
        assert "Install the same tfsched in all tasks" in said[0]
        builds = re.findall(r"\b\d+-[0-9a-f]{16}", said[0])
        assert len(set(builds)) == 2
        assert "runs build" not in cluster.log("ps0")


def test_one_build_is_one_version(nursery, stock_losses):
    with Cluster(nursery=nursery) as cluster:
        cluster.call("worker0", "common.open_session", options={})
        assert cluster.call("worker0", "common.run", count=STEPS) == stock_losses
        assert cluster.wait_idle("ps0")["tasks"] == 8 * STEPS
        assert LINE not in cluster.log("worker0")
