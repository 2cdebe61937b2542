"""Transfers in chunks between real processes: the same bits, ranks in order, another size of chunks in the next session."""

import pytest

from .cluster import STOCK, Cluster, TaskError

pytestmark = pytest.mark.timeout(180)
# A busy machine can be slower than the usual 5 ms; the order is to be seen where nothing is given up.
PATIENT = {"TFSCHED_GRACE_US": "30e6"}
LAYER_BYTES = 96 * 96 * 4


@pytest.fixture(scope="module")
def stock(nursery):
    """A cluster without tfsched."""
    with Cluster(nursery=nursery, ps=2, protocol=STOCK) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def ordered(nursery):
    """The same with tfsched in every task."""
    with Cluster(nursery=nursery, ps=2, environment=dict.fromkeys(("ps0", "ps1", "worker0"), PATIENT)) as cluster:
        yield cluster


def train(cluster, sizes, **arguments):
    return cluster.call("worker0", "partition.train", sizes=sizes, limit_s=120, **arguments)


def merges(cluster):
    stats = cluster.stats("worker0")
    return stats["merges_in_place"], stats["merges_copied"]


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
def test_another_size_needs_another_session_and_nothing_else(stock, ordered, use_resource):
    wanted = train(stock, [None], steps=10, use_resource=use_resource)
    before = merges(ordered)
    got = train(ordered, [4096, 10_000], steps=5, use_resource=use_resource)
    assert (got["losses"], got["variables"]) == (wanted["losses"], wanted["variables"])
    assert len(set(got["losses"])) == 10
    # 6 weights of 9 chunks, then of 4.
    assert "6 of them in 54 chunks" in got["reports"][0]
    assert "6 of them in 24 chunks" in got["reports"][1]
    # The first step of each size copies the 6 weights, the other 4 receive their chunks side by side.
    assert tuple(now - then for now, then in zip(merges(ordered), before, strict=True)) == (2 * 4 * 6, 2 * 1 * 6)


@pytest.mark.parametrize("policy", ["tictac", "fifo"])
def test_chunks_leave_as_their_ranks_say(ordered, policy):
    before = len(ordered.call("ps0", "common.transfers"))
    train(ordered, [4096], steps=3, policy=policy)
    stats = ordered.wait_idle("ps0")
    assert stats["step_asides"] == 0
    rows = [one for one in ordered.call("ps0", "common.transfers")[before:] if "#" in one["name"]]
    steps = {}
    for row in rows:
        steps.setdefault((row["step_id"], row["to"]), []).append(row)
    assert len(steps) == 3
    for step in steps.values():
        names = {row["name"].partition("#")[0] for row in step}
        assert len(names) == 6  # parameter servers take turns: the weights are on one, the biases on the other
        assert len(step) == 6 * 9
        assert sum(row["bytes"] for row in step) == 6 * LAYER_BYTES
        assert max(row["bytes"] for row in step) <= 4096
        for name in names:
            parts = sorted((row["rank"], row["name"]) for row in step if row["name"].startswith(name + "#"))
            assert [part for _, part in parts] == [f"{name}#{number}/9" for number in range(9)]
            assert [rank for rank, _ in parts] == list(range(parts[0][0], parts[0][0] + 9))
        if policy == "tictac":
            ranks = [row["rank"] for row in step]  # in the order of their starts
            assert ranks == sorted(ranks)


@pytest.mark.parametrize(
    ("scenario", "arguments"),
    [
        ("in_graph", {}),
        ("functions", {}),
        ("branches", {"version": 1}),
        ("branches", {"version": 2}),
        ("loops", {"version": 1}),
        ("edges", {}),
        ("feeds_and_fetches", {}),
        ("partial_runs", {}),
    ],
)
def test_graphs_of_every_kind(stock, ordered, scenario, arguments):
    before = len(ordered.call("ps0", "common.transfers"))
    options = {"partition_bytes": 4096, "strict": True}
    pending = stock.submit("worker0", f"graphs.{scenario}", options=None, **arguments)
    assert ordered.call("worker0", f"graphs.{scenario}", options=options, **arguments) == pending.result()
    rows = ordered.call("ps0", "common.transfers")[before:]
    assert {row["bytes"] for row in rows if "#" in row["name"]} == {4096}  # all are matrices of 16 kB
    assert ordered.wait_idle("ps0")["queue_depth"] == 0


def test_a_stock_worker_gets_whole_tensors(nursery):
    with Cluster(nursery=nursery, ps=1, workers=2, protocols={"worker1": STOCK}) as cluster:
        session = {"options": {"partition_bytes": 4096, "strict": True}, "layers": 3}
        cluster.call("worker0", "common.open_session", device="/job:worker/task:1", **session)
        losses = cluster.call("worker0", "common.run", count=3)
        assert len(set(losses)) == 3
        rows = cluster.call("ps0", "common.transfers")
        assert {"#" in row["name"] for row in rows if row["rank"] >= 0} == {False}
        cluster.call("worker0", "common.open_session", name="own", **session)
        assert cluster.call("worker0", "common.run", name="own", count=3) == losses
        assert any("#" in row["name"] for row in cluster.call("ps0", "common.transfers"))


def test_a_step_that_ends_early_takes_its_chunks_with_it(nursery):
    # A transfer is 1 MB in 16 chunks; the sender paces them, so that a step of 8 takes 0.8 s.
    with Cluster(nursery=nursery, environment={"ps0": {"TFSCHED_EMULATED_BPS": "80e6"}}) as cluster:
        session = {"options": {"partition_bytes": 65_536, "credit_bytes": 65_536}, "layers": 8, "width": 512}
        cluster.call("worker0", "common.open_session", **session)
        (first,) = cluster.call("worker0", "common.run")
        for ended_by in ("timeout", "close"):
            cluster.wait_idle("ps0")
            dropped = cluster.stats("ps0")["dropped"]
            limit_ms = 400 if ended_by == "timeout" else None
            step = cluster.submit("worker0", "common.run", fetch="gated", timeout_ms=limit_ms)
            cluster.wait_queued("ps0")
            if ended_by == "close":
                cluster.call("worker0", "common.close_session")
            with pytest.raises(TaskError):
                step.result()
            stats = cluster.wait_idle("ps0")
            assert stats["dropped"] > dropped
        cluster.call("worker0", "common.open_session", init=True, **session)
        assert cluster.call("worker0", "common.run") == [first]
