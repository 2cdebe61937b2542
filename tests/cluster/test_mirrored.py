"""MultiWorkerMirroredStrategy with tfsched: stock's bits with two workers, equal sums with more, stock if members differ."""

import re

import pytest

from .cluster import STOCK, TFSCHED, Cluster, TaskError, wait_until

pytestmark = pytest.mark.timeout(540)
LIMIT_S = 200
STEPS = 8
COUNTERS = ("all_reduces", "all_reduces_failed", "packs_scheduled", "packs_stock", "tasks", "bytes")
LEFT_TO_STOCK = "run as in stock TensorFlow"


def everywhere(cluster, scenario, own=None, **arguments):
    """Lets every worker run the scenario, with what ``own`` (name -> arguments) adds; their results."""
    pending = [cluster.submit(name, scenario, **{**arguments, **(own or {}).get(name, {})}) for name in cluster.names]
    return [one.result(LIMIT_S) for one in pending]


def counted(cluster, name):
    return {key: cluster.stats(name)[key] for key in COUNTERS}


def mirrored(nursery, workers=2, **arguments):
    return Cluster(ps=0, workers=workers, nursery=nursery, mirrored=True, **arguments)


@pytest.fixture(scope="module")
def pair(nursery):
    """Two workers with stock servers, and two with tfsched's."""
    with mirrored(nursery, protocol=STOCK) as stock, mirrored(nursery) as ours:
        yield stock, ours


@pytest.mark.parametrize(
    ("rule", "arguments"),
    [
        ("descent", {}),
        ("momentum", {"dtype": "bfloat16"}),
        ("descent", {"dtype": "float16", "bytes_per_pack": 100_000}),
        ("sgd", {}),
        ("adam", {}),
    ],
    ids=["descent", "momentum-bfloat16", "descent-float16-packs", "sgd-momentum", "adam"],
)
def test_identical_to_stock(pair, rule, arguments):
    stock, ours = pair
    arguments = {"rule": rule, "steps": STEPS, **arguments}
    wanted = everywhere(stock, "mirrored.train", **arguments)
    before = counted(ours, "worker0")
    got = everywhere(ours, "mirrored.train", options={}, **arguments)
    assert got == wanted
    assert got[0]["variables"] == got[1]["variables"] and got[0]["losses"] != got[1]["losses"]
    after = counted(ours, "worker0")
    assert after["packs_scheduled"] - before["packs_scheduled"] >= STEPS
    assert after["all_reduces"] - before["all_reduces"] >= 3 * STEPS  # two large weights and a bundle at least
    assert after["all_reduces_failed"] == 0 and after["packs_stock"] == 0
    assert after["tasks"] > before["tasks"]  # they were ordered


def test_fit_is_identical(pair):
    stock, ours = pair
    wanted = everywhere(stock, "mirrored.fit")
    before = counted(ours, "worker0")
    assert everywhere(ours, "mirrored.fit", options={"partition_bytes": 16384}) == wanted
    assert counted(ours, "worker0")["all_reduces"] > before["all_reduces"]


def test_several_steps_in_one_execution(pair):
    stock, ours = pair
    wanted = everywhere(stock, "mirrored.fit", steps_per_execution=4)
    before = counted(ours, "worker0")
    assert everywhere(ours, "mirrored.fit", options={}, steps_per_execution=4) == wanted
    after = counted(ours, "worker0")
    assert after["packs_scheduled"] - before["packs_scheduled"] >= 16 and after["packs_stock"] == 0


def test_other_options_mean_stock_and_the_same_ones_scheduled_again(pair):
    stock, ours = pair
    wanted = everywhere(stock, "mirrored.train", steps=3)
    own = {"worker0": {"options": {}}, "worker1": {"options": {"partition_bytes": 65536}}}
    before = counted(ours, "worker0")
    assert everywhere(ours, "mirrored.train", own, steps=3) == wanted
    middle = counted(ours, "worker0")
    assert middle["packs_stock"] - before["packs_stock"] == 3 and middle["all_reduces"] == before["all_reduces"]
    for name in ours.names:
        said = [line for line in ours.log(name).splitlines() if LEFT_TO_STOCK in line]
        assert len(said) == 1 and "partition_bytes 65536" in said[0] and "task:1" in said[0]
    assert everywhere(ours, "mirrored.train", options={}, steps=3) == wanted
    assert counted(ours, "worker0")["all_reduces"] > middle["all_reduces"]


def test_three_workers_have_one_sum_and_integers_are_exact(nursery):
    with mirrored(nursery, workers=3) as cluster:
        results = everywhere(cluster, "mirrored.train", options={"partition_bytes": 8192}, steps=STEPS)
        assert results[0]["variables"] == results[1]["variables"] == results[2]["variables"]
        again = everywhere(cluster, "mirrored.train", options={"partition_bytes": 8192}, steps=STEPS)
        assert again == results
        assert everywhere(cluster, "mirrored.train_integers", options={}) == [True, True, True]
        assert counted(cluster, "worker2")["packs_stock"] == 0


@pytest.mark.parametrize("killed", ["worker0", "worker2"])
def test_a_killed_member_ends_the_others_steps(nursery, killed):
    with mirrored(nursery, workers=3, protocol=TFSCHED) as cluster:
        everywhere(cluster, "mirrored.begin", options={})
        left = [name for name in cluster.names if name != killed]
        wait_until(lambda: cluster.call(left[0], "mirrored.progress")["steps"] > 5, 60, "training")
        assert counted(cluster, left[0])["all_reduces"] > 0
        cluster.kill(killed)
        for name in left:
            error = wait_until(lambda name=name: cluster.call(name, "mirrored.progress")["error"], 30, f"an error in {name}")
            assert error["kind"] in ("UnavailableError", "AbortedError", "InternalError"), error
            assert re.search(f"task:{killed[-1]}", error["message"]), error
        # What comes later fails at once, and does not wait.
        with pytest.raises(TaskError):
            cluster.call(left[0], "mirrored.train", options={}, steps=1, limit_s=60)


def test_an_abort_of_one_members_collectives_ends_all_steps(nursery):
    with mirrored(nursery) as cluster:
        everywhere(cluster, "mirrored.begin", options={})
        wait_until(lambda: cluster.call("worker0", "mirrored.progress")["steps"] > 5, 60, "training")
        cluster.call("worker1", "mirrored.abort")
        for name in cluster.names:
            error = wait_until(lambda name=name: cluster.call(name, "mirrored.progress")["error"], 30, f"an error in {name}")
            assert "a peer looks dead" in error["message"], error
        assert counted(cluster, "worker0")["all_reduces"] > 0
