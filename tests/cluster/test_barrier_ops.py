"""The ops that cross the barrier, in a graph written by hand, on real clusters."""

import pytest

from .cluster import Cluster

pytestmark = pytest.mark.timeout(300)


def test_two_hundred_steps_are_those_of_synchronous_training():
    with Cluster(ps=2) as cluster:
        cluster.call("worker0", "barrier.open_training", client=None)
        losses = cluster.call("worker0", "barrier.steps", count=200)
        variables = cluster.call("worker0", "barrier.digests")
        cluster.call("worker0", "barrier.close")

        cluster.call("worker0", "barrier.open_training", client="a")
        assert cluster.call("worker0", "barrier.steps", count=200) == losses
        assert cluster.call("worker0", "barrier.digests") == variables
        assert len(set(losses)) == 200
        stats = cluster.stats("worker0")
        assert stats["background_calls"] == stats["background_done"] == 200
        assert stats["background_failed"] == stats["background_outstanding"] == 0
