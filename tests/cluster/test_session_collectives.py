"""All-reduces in tf.compat.v1 graphs: stock's bits with two workers, and stock's ops where members differ, step by step."""

import pytest

from .cluster import STOCK
from .test_mirrored import LEFT_TO_STOCK, counted, everywhere, mirrored

pytestmark = pytest.mark.timeout(300)
STEPS = 6
TENSORS = 3  # of the model; each is exchanged by itself


@pytest.fixture(scope="module")
def pair(nursery):
    """Two workers with stock servers, and two with tfsched's."""
    with mirrored(nursery, protocol=STOCK) as stock, mirrored(nursery) as ours:
        yield stock, ours


def changes(cluster, name, before):
    return {key: value - before[key] for key, value in counted(cluster, name).items()}


@pytest.mark.parametrize("op", ["CollectiveReduceV2", "CollectiveReduce", "strategy"])
def test_identical_to_stock(pair, op):
    stock, ours = pair
    wanted = everywhere(stock, "session_collectives.train", op=op, steps=STEPS)
    before = counted(ours, "worker0")
    assert everywhere(ours, "session_collectives.train", options={}, op=op, steps=STEPS) == wanted
    assert wanted[0]["variables"] == wanted[1]["variables"] and wanted[0]["losses"] != wanted[1]["losses"]
    made = changes(ours, "worker0", before)
    assert made["packs_scheduled"] == STEPS * (TENSORS if op == "CollectiveReduce" else 1)
    assert made["all_reduces"] == STEPS * TENSORS and made["packs_stock"] == made["all_reduces_failed"] == 0
    assert made["tasks"] > 0  # they were ordered


def test_members_may_come_and_go_between_sessions(pair):
    stock, ours = pair
    wanted = everywhere(stock, "session_collectives.train", steps=3)
    everywhere(ours, "session_collectives.train", options={}, steps=3)
    # One trains without tfsched for a while, although it has said plans for the same keys before.
    before = counted(ours, "worker0")
    assert everywhere(ours, "session_collectives.train", {"worker0": {"options": {}}}, steps=3) == wanted
    made = changes(ours, "worker0", before)
    assert (made["packs_stock"], made["all_reduces"]) == (3, 0)
    own = {"worker0": {"options": {}}, "worker1": {"options": {"partition_bytes": 16384}}}
    assert everywhere(ours, "session_collectives.train", own, steps=3) == wanted
    assert everywhere(ours, "session_collectives.train", options={}, steps=3) == wanted
    assert changes(ours, "worker0", before)["packs_scheduled"] == 3
    said = [line for line in ours.log("worker0").splitlines() if LEFT_TO_STOCK in line]
    assert len(said) == 2 and "task:1 runs it without tfsched" in said[0] and "partition_bytes 16384" in said[1]


def test_the_barrier_is_kept_and_it_is_said(pair):
    stock, ours = pair
    wanted = everywhere(stock, "session_collectives.train", steps=3)
    before = counted(ours, "worker0")
    assert everywhere(ours, "session_collectives.train", options={"barrier": False}, steps=3) == wanted
    assert changes(ours, "worker0", before)["packs_scheduled"] == 3
    assert "gradients are all-reduced in a session" in ours.log("worker0")


@pytest.mark.parametrize("op", ["CollectiveReduceV2", "CollectiveReduce"])
def test_a_stock_member_means_stock(nursery, pair, op):
    wanted = everywhere(pair[0], "session_collectives.train", op=op, steps=3)
    with mirrored(nursery, protocols={"worker1": STOCK}) as cluster:
        assert everywhere(cluster, "session_collectives.train", {"worker0": {"options": {}}}, op=op, steps=3) == wanted
        assert counted(cluster, "worker0")["all_reduces"] == 0 and counted(cluster, "worker0")["packs_stock"] >= 3
        said = [line for line in cluster.log("worker0").splitlines() if LEFT_TO_STOCK in line]
        assert len(said) == 1 and "task:1 does not run this build" in said[0]
