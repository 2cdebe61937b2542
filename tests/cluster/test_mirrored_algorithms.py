"""The algorithms of an all-reduce, each for all tensors: one sum on all workers, and but for the ring the same one."""

import pytest

from .cluster import Cluster
from .test_mirrored import LEFT_TO_STOCK, counted, everywhere

pytestmark = pytest.mark.timeout(300)
STEPS = 4
WORKERS = ("worker0", "worker1", "worker2")


def mirrored(nursery, algorithms):
    """Three workers with an algorithm each."""
    environment = {name: {"TFSCHED_ALL_REDUCE": one} for name, one in zip(WORKERS, algorithms, strict=True)}
    return Cluster(ps=0, workers=3, nursery=nursery, mirrored=True, environment=environment)


def test_every_algorithm_gives_all_workers_the_same_sums(nursery):
    trained = {}
    for algorithm in ("direct", "doubling", "ring"):
        with mirrored(nursery, [algorithm] * 3) as cluster:
            results = everywhere(cluster, "mirrored.train", options={"partition_bytes": 20_000}, steps=STEPS)
            assert results[0]["variables"] == results[1]["variables"] == results[2]["variables"]
            assert everywhere(cluster, "mirrored.train_integers", options={"partition_bytes": 20_000}) == [True] * 3
            for name in cluster.names:
                counters = counted(cluster, name)
                assert counters["all_reduces"] > 0 and counters["packs_stock"] == counters["all_reduces_failed"] == 0
        trained[algorithm] = results
    assert trained["doubling"] == trained["direct"]


def test_workers_that_want_different_algorithms_run_stock(nursery):
    with mirrored(nursery, ["auto", "ring", "auto"]) as cluster:
        first, second, third = everywhere(cluster, "mirrored.train", options={}, steps=STEPS)
        assert first["variables"] == second["variables"] == third["variables"]
        for name in cluster.names:
            assert counted(cluster, name)["packs_stock"] == STEPS and counted(cluster, name)["all_reduces"] == 0
            said = [line for line in cluster.log(name).splitlines() if LEFT_TO_STOCK in line]
            assert len(said) == 1 and "task:1 has algorithm ring" in said[0]


def most_asked_bytes(sends, receiver):
    """Of what the receiver asked one sender for, and had not got yet: the most at any time."""
    rows = [row for row in sends if row["to"].endswith(receiver)]
    events = [(row["requested_us"], row["bytes"]) for row in rows] + [(row["released_us"], -row["bytes"]) for row in rows]
    asked = [0]
    for _, size in sorted(events):
        asked.append(asked[-1] + size)
    return max(asked)


def test_of_a_tensor_that_is_alone_no_more_is_asked_for_than_the_link_carries_in_8_ms(nursery):
    """Else TCP says which worker gets its bytes first, and one of them is late. 4 MB, at 50 kB in 8 ms."""
    environment = {name: {"TFSCHED_EMULATED_BPS": "50e6"} for name in WORKERS}
    arguments = {"options": {"partition_bytes": 60_000}, "steps": 6}
    with Cluster(ps=0, workers=3, nursery=nursery, mirrored=True, environment=environment) as cluster:
        alone = everywhere(cluster, "mirrored.reduce_at_once", sizes=[1_000_000], **arguments)
        together = everywhere(cluster, "mirrored.reduce_at_once", sizes=[500_000] * 2, **arguments)

    def asked(steps, number):
        return [[most_asked_bytes(sends, f"task:{receiver}") for receiver in {0, 1, 2} - {number}] for sends in steps]

    # The first step measures the links, and after one that was not at their pace the next does so again. All other ones are
    # small. A window grows with the time that answers take.
    for number, steps in enumerate(alone):
        for of_receiver in zip(*asked(steps, number), strict=True):
            assert 20_000 <= min(of_receiver) <= 600_000, of_receiver
    # Of two tensors both halves of 2.7 MB are, also of the one that began first, so that none waits for a question.
    for number, steps in enumerate(together):
        assert min(asked(steps, number)[-1]) > 1_600_000
