"""How fast a link is is measured before the first graph is cut: its pieces fit the link, and the values stay the same."""

import subprocess

import pytest

from tfsched import Options
from tfsched.bench.testbed import Testbed, netns_available

from .cluster import STOCK, Cluster

pytestmark = pytest.mark.timeout(300)
PLAIN = {"barrier": False}
SMALLEST, UNKNOWN = (250_000, 250_000), (500_000, 1_000_000)
STEPS = 4


def sized(cluster, name="worker0"):
    """What the pass of a process has measured, and what it chose."""
    seen = cluster.call(name, "crossing.passed")
    assert seen["errors"] == 0, seen["last_error"]
    return seen["link_bps"], (seen["partition_bytes"], seen["credit_bytes"])


def trained(cluster, options=PLAIN):
    return cluster.call("worker0", "crossing.every_step", options=options, steps=STEPS, limit_s=120)


@pytest.fixture(scope="module")
def wanted(nursery):
    with Cluster(nursery=nursery, protocol=STOCK) as cluster:
        yield trained(cluster, options=None)


def limited(nursery, bps, **arguments):
    return Cluster(nursery=nursery, environment={"ps0": {"TFSCHED_EMULATED_BPS": str(bps)}}, **arguments)


def test_pieces_fit_what_was_measured_and_nothing_is_measured_twice(nursery, wanted):
    with Cluster(nursery=nursery) as cluster:
        assert trained(cluster) == wanted
        first, sizes = sized(cluster)
        settled = Options(**PLAIN).settled(first)
        assert first > 0 and sizes == (settled.partition_bytes, settled.credit_bytes)
        # Every graph of the process is cut alike, and nothing is measured again.
        trained(cluster)
        assert sized(cluster) == (first, sizes)
        # What was measured is no transfer of the training.
        assert not [one for one in cluster.call("ps0", "common.transfers") if "probe" in one["name"]]


def test_a_slow_link_has_the_smallest_pieces(nursery, wanted):
    with limited(nursery, 1e8) as cluster:
        assert trained(cluster) == wanted
        measured, sizes = sized(cluster)
        assert 0 < measured < 1.1e8 and sizes == SMALLEST


def test_what_a_link_lets_pass_at_once_is_not_its_rate(nursery, wanted):
    """As token buckets of networks do: the first bytes after a pause are not limited."""
    available, reason = netns_available()
    if not available:
        pytest.skip(reason)
    names = ["ps0", "worker0"]
    with Testbed(names) as testbed:
        limit = ["root", "tbf", "rate", "100mbit", "burst", "1000000", "latency", "50ms"]
        command = ["tc", "-n", testbed.namespace("ps0"), "qdisc", "replace", "dev", "eth0", *limit]
        subprocess.run(command, check=True, timeout=20)
        with Cluster(nursery=nursery, testbed=testbed) as cluster:
            assert trained(cluster) == wanted
            measured, sizes = sized(cluster)
            assert 0 < measured < 2e8 and sizes == SMALLEST


def test_training_does_not_wait_for_a_link_that_takes_seconds(nursery, wanted):
    with limited(nursery, 1e6) as cluster:
        assert trained(cluster) == wanted
        assert sized(cluster) == (0, UNKNOWN)


def test_a_server_without_tfsched_is_not_asked(nursery, wanted):
    with Cluster(nursery=nursery, protocols={"ps0": STOCK}) as cluster:
        assert trained(cluster) == wanted
        assert sized(cluster) == (0, UNKNOWN)


def test_what_a_user_asks_for_needs_no_measurement(nursery, wanted):
    with Cluster(nursery=nursery) as cluster:
        assert trained(cluster, options={**PLAIN, "partition_bytes": 8192, "credit_bytes": 0}) == wanted
        assert sized(cluster) == (0, (8192, 0))


def test_workers_of_functions_measure_their_own_link(nursery):
    with limited(nursery, 1e8, coordinator=True) as cluster:
        cluster.call("chief0", "functions.open_training", options=PLAIN, optimizer="sgd", limit_s=120)
        cluster.call("chief0", "functions.steps", count=2, look_every=1, limit_s=120)
        measured, sizes = sized(cluster)
        assert 0 < measured < 1.1e8 and sizes == SMALLEST
