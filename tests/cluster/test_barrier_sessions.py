"""Across the barrier: evaluation, checkpoints and other sessions see whole steps; several clients lose nothing."""

import pytest

from .cluster import STOCK, Cluster

pytestmark = pytest.mark.timeout(300)
CROSSING = {"barrier": False}
# Variables leave whole, however slow the link is.
WHOLE = {"barrier": False, "partition_bytes": 0}
# Variables leave in 16 chunks and more, and are updated chunk by chunk.
CHUNKS = {"barrier": False, "policy": "bytescheduler", "partition_bytes": 1 << 14, "credit_bytes": 1 << 16}


def done(cluster, name="worker0"):
    """How many background updates the task has finished."""
    return cluster.settled(name)["background_done"]


def in_all(cluster, key):
    """A counter of both parameter servers."""
    return sum(cluster.stats(name)[key] for name in ("ps0", "ps1"))


def start(nursery, **more):
    return Cluster(nursery=nursery, ps=2, **more)


@pytest.fixture(scope="module")
def stock(nursery):
    """A cluster without tfsched."""
    with start(nursery, protocol=STOCK) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def crossing(nursery):
    """The same with tfsched in every task."""
    with start(nursery) as cluster:
        yield cluster


def test_evaluation_sees_the_last_finished_step(stock, crossing):
    pending = stock.submit("worker0", "crossing.every_step", options=None, steps=20)
    got = crossing.call("worker0", "crossing.every_step", options=CROSSING, steps=20)
    wanted = pending.result()
    assert [step for step, _ in wanted] == list(range(1, 21))
    assert len({tuple(sorted(digests.items())) for _, digests in wanted}) == 20
    assert got == wanted
    assert done(crossing) >= 20


@pytest.mark.parametrize("optimizer", ["adam", "momentum"])
def test_checkpoints_are_vanillas_and_training_resumes(stock, crossing, tmp_path, optimizer):
    """Every 6 steps to step 20, then on to step 30 from the checkpoint of step 18 or 20."""
    results = {}
    for name, cluster, options in (("stock", stock, None), ("crossing", crossing, CROSSING)):
        arguments = {"options": options, "directory": str(tmp_path / name), "save_every": 6, "optimizer": optimizer}
        first = cluster.call("worker0", "crossing.monitored", until=20, **arguments)
        second = cluster.call("worker0", "crossing.monitored", until=30, **arguments)
        results[name] = first, second
    first, second = results["stock"]
    assert first["stopped"] and second["stopped"]
    assert first["first"] == 0 and second["first"] == 20
    assert len(first["checkpoints"]) >= 4 and len(set(map(str, first["checkpoints"].values()))) == len(first["checkpoints"])
    assert results["crossing"] == results["stock"]


def test_a_session_with_several_kinds_of_steps(stock, crossing):
    """What one step hands over is not what another takes, though TensorFlow shares kernels of one name in a session."""
    pending = stock.submit("worker0", "crossing.two_kinds_of_steps", options=None, steps=24)
    before = done(crossing)
    got = crossing.call("worker0", "crossing.two_kinds_of_steps", options={**CROSSING, "strict": True}, steps=24)
    assert got == pending.result()
    assert done(crossing) - before >= 24 + 8 + 6


@pytest.mark.parametrize("options", [WHOLE, {**CHUNKS, "partition_bytes": 1 << 20}], ids=["whole", "chunks"])
def test_others_never_see_half_an_update(crossing, options):
    """A stock session reads a variable of 16 MB while a crossing one trains it: all elements are equal in every read."""
    width = 1 << 22
    crossing.call("worker0", "crossing.count", options=options, steps=1, width=width)
    before, by_chunks = done(crossing), in_all(crossing, "updates_by_chunks")
    training = crossing.submit("worker0", "crossing.count", options=options, steps=60, width=width, init=False)
    reads = crossing.call("worker0", "crossing.look", reads=60, width=width)
    training.result()
    assert done(crossing) - before == 60
    assert all(low == high for low, high in reads)
    assert len({low for low, _ in reads}) > 5  # they were read while it changed
    assert crossing.call("worker0", "crossing.look", width=width) == [[-61.0, -61.0]]
    assert in_all(crossing, "updates_by_chunks") - by_chunks == (60 if "policy" in options else 0)


def test_a_closed_session_has_applied_its_updates(crossing):
    before = done(crossing)
    for steps in range(1, 11):
        crossing.call("worker0", "crossing.count", options=CROSSING, steps=steps)
        assert crossing.call("worker0", "crossing.look") == [[-float(steps)] * 2]
    assert done(crossing) - before == 55


@pytest.mark.parametrize("options", [WHOLE, CHUNKS], ids=["whole", "chunks"])
@pytest.mark.parametrize("foreign", [False, True], ids=["same-session", "stock-session"])
def test_a_value_sent_ahead_is_not_used_once_it_is_overwritten(crossing, foreign, options):
    keys = ("sent_ahead", "sent_ahead_missed", "updates_by_chunks")
    before = {key: in_all(crossing, key) for key in keys}
    got = crossing.call("worker0", "crossing.overwritten", options=options, steps=9, foreign=foreign)
    assert got == [0.0, 10.0, 9.0, 30.0, 29.0, 50.0, 49.0, 70.0, 69.0]
    grown = {key: in_all(crossing, key) - before[key] for key in keys}
    assert grown["sent_ahead"] > grown["sent_ahead_missed"] > 0
    assert grown["updates_by_chunks"] == (9 if options is CHUNKS else 0)


@pytest.mark.parametrize("options", [WHOLE, CHUNKS], ids=["whole", "chunks"])
def test_two_asynchronous_workers_lose_no_update(nursery, options):
    """Between-graph replication: each worker crosses on its own, all updates of both are there in the end."""
    with Cluster(nursery=nursery, ps=1, workers=2) as cluster:
        cluster.call("worker0", "crossing.count", options=options, steps=0)
        pending = [
            cluster.submit(name, "crossing.count", options=options, steps=200, init=False) for name in ("worker0", "worker1")
        ]
        for one in pending:
            one.result()
        assert cluster.call("worker0", "crossing.look") == [[-400.0, -400.0]]
        for name in ("worker0", "worker1"):
            assert done(cluster, name) == 200
        if options is CHUNKS:  # and some were under way when the other worker's were published
            seen = cluster.stats("ps0")
            assert seen["updates_by_chunks"] + seen["updates_whole_after_all"] == 400
            assert seen["updates_whole_after_all"] > 0 and seen["updates_in_chunks"] == 0
