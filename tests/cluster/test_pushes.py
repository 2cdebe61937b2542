"""Pushes between real processes, under the policies that order them: the same bits, and the order of the next pulls."""

import pytest

from .cluster import STOCK, Cluster

pytestmark = pytest.mark.timeout(180)
SIZE = {"ps": 2, "workers": 2}
POLICIES = ("bytescheduler", "p3", "prophet")


@pytest.fixture(scope="module")
def stock(nursery):
    """A cluster without tfsched."""
    with Cluster(nursery=nursery, protocol=STOCK, **SIZE) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def ordered(nursery):
    """The same with tfsched in every task."""
    with Cluster(nursery=nursery, **SIZE) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def wanted(stock):
    """Scenario and its arguments -> what stock TensorFlow gives, computed once."""
    known = {}

    def get(scenario, **arguments):
        key = (scenario, *sorted(arguments.items()))
        if key not in known:
            known[key] = stock.call("worker0", scenario, limit_s=120, **arguments)
        return known[key]

    return get


def pushed(cluster, worker, of):
    """Step -> the ordered transfers from a worker to the parameter servers in that step, in the order of their starts."""
    steps = {}
    for row in cluster.call(worker, "common.transfers"):
        if row["rank"] >= 0 and "/job:ps" in row["to"]:
            steps.setdefault(row["step_id"], []).append(row)
    return list(steps.values())[of:]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
def test_training_is_the_same(wanted, ordered, policy, use_resource):
    before = len(pushed(ordered, "worker0", 0))
    got = ordered.call(
        "worker0", "partition.train", sizes=[4096, 0], steps=5, use_resource=use_resource, policy=policy, limit_s=120
    )
    vanilla = wanted("partition.train", sizes=(None,), steps=10, use_resource=use_resource)
    assert (got["losses"], got["variables"]) == (vanilla["losses"], vanilla["variables"])
    assert "(12 pushes), 12 of them in 108 chunks" in got["reports"][0]
    assert "(12 pushes)" in got["reports"][1]
    steps = pushed(ordered, "worker0", before)
    assert len(steps) == 10
    # The weights' parameter server gets 9 chunks of each, the biases' one tensor of each.
    assert [len(step) for step in steps] == [6 * 9 + 6] * 5 + [12] * 5
    for step in steps:
        for receiver in {row["to"] for row in step}:
            ranks = sorted(row["rank"] for row in step if row["to"] == receiver)
            assert ranks == list(range(len(ranks)))


@pytest.mark.parametrize("policy", POLICIES)
def test_towers_are_the_same(wanted, ordered, policy):
    options = {"policy": policy, "partition_bytes": 4096, "strict": True}
    before = [len(pushed(ordered, worker, 0)) for worker in ("worker0", "worker1")]
    assert ordered.call("worker0", "graphs.in_graph", options=options) == wanted("graphs.in_graph", options=None)
    for worker, first in zip(("worker0", "worker1"), before, strict=True):
        steps = pushed(ordered, worker, first)
        assert [len(step) for step in steps] == [6] * 6  # gradients of a sum that says nothing of its parts' sizes


@pytest.mark.parametrize("policy", ["tictac", "fifo"])
def test_other_policies_leave_them_alone(ordered, policy):
    before = len(pushed(ordered, "worker0", 0))
    got = ordered.call("worker0", "partition.train", sizes=[4096], steps=2, policy=policy, limit_s=120)
    assert "pushes" not in got["reports"][0]
    assert pushed(ordered, "worker0", before) == []


def test_a_queued_push_is_overtaken_by_one_that_is_needed_sooner(nursery):
    """On a slow link the gradients of the last layers come first and those of the first layers pass them."""
    environment = {"worker0": {"TFSCHED_EMULATED_BPS": "40e6"}}
    with Cluster(nursery=nursery, environment=environment) as cluster:
        options = {"policy": "bytescheduler", "credit_bytes": 65_536, "partition_bytes": 65_536, "strict": True}
        cluster.call("worker0", "common.open_session", options=options, layers=6, width=256)
        cluster.call("worker0", "common.run", count=3)
        cluster.wait_idle("ps0")
        for step in pushed(cluster, "worker0", 0):
            ready = [row["rank"] for row in sorted(step, key=lambda row: row["ready_us"])]
            ranks = [row["rank"] for row in step]
            assert sorted(ranks) == list(range(6 * 4))
            assert ready != sorted(ready)  # otherwise the order would prove nothing
            # When the first layer's gradient has come, the queue holds others, and its chunks pass them.
            arrived_us = max(row["ready_us"] for row in step if row["rank"] < 4)
            later = [row["rank"] for row in step if row["started_us"] >= arrived_us]
            assert later == sorted(later)
            assert later[0] < 4 < later[-1]
