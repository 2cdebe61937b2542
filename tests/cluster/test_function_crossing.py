"""tf.functions under ParameterServerStrategy: their updates go on in the background, and nobody can tell from the values."""

import math

import pytest

from .cluster import Cluster, wait_until

pytestmark = pytest.mark.timeout(300)
CHIEF = "chief0"
WORKER, SERVERS = "worker0", ("ps0", "ps1")
# What is added up in which order must depend on nothing: oneDNN chooses by the number of idle threads.
FIXED = {"TF_ENABLE_ONEDNN_OPTS": "0"}
STEPS = 30
STOCK = {"ordering": "none"}
PLAIN = {"barrier": False}
CHUNKS = {"barrier": False, "policy": "bytescheduler", "partition_bytes": 4096, "credit_bytes": 8192}


@pytest.fixture(scope="module")
def cluster(nursery):
    environment = dict.fromkeys((CHIEF, WORKER, *SERVERS), FIXED)
    with Cluster(nursery=nursery, ps=2, coordinator=True, environment=environment) as cluster:
        yield cluster


def train(cluster, options, optimizer):
    cluster.call(CHIEF, "functions.open_training", options=options, optimizer=optimizer, limit_s=120)
    seen = cluster.call(CHIEF, "functions.steps", count=STEPS, look_every=3, limit_s=120)
    return seen, cluster.call(CHIEF, "functions.variables")


@pytest.mark.parametrize(
    "optimizer,options",
    [("sgd", PLAIN), ("adam", CHUNKS), ("legacy_adam", PLAIN), ("legacy_adam", CHUNKS), ("by_hand", PLAIN)],
    ids=lambda x: str(x),
)
def test_values_are_those_of_stock(cluster, optimizer, options):
    wanted = train(cluster, STOCK, optimizer)
    assert len(set(wanted[0])) == STEPS + STEPS // 3
    assert all(math.isfinite(float.fromhex(value)) for value in wanted[0])
    before = cluster.stats(WORKER)
    used = sum(cluster.stats(name)["sent_ahead_used"] for name in SERVERS)
    by_chunks = sum(cluster.stats(name)["updates_by_chunks"] for name in SERVERS)
    assert train(cluster, options, optimizer) == wanted
    report = cluster.call(WORKER, "functions.report")
    slots = {"sgd": 1, "adam": 2, "legacy_adam": 2, "by_hand": 1}[optimizer]
    assert (report["crossing"], report["kept"], report["errors"]) == (8 * (1 + slots), {}, 0)
    after = cluster.settled(WORKER)
    assert after["background_calls"] - before["background_calls"] == STEPS
    assert after["background_failed"] == 0
    # Four weights are sent ahead for each step but the first, and the second if the first one's were found to be another's.
    used = sum(cluster.stats(name)["sent_ahead_used"] for name in SERVERS) - used
    assert used in (4 * (STEPS - 1), 4 * (STEPS - 2))
    by_chunks = sum(cluster.stats(name)["updates_by_chunks"] for name in SERVERS) - by_chunks
    # One op updates a weight and its slots, or several do that read each other's results; only the former goes by chunks.
    assert by_chunks == (4 * STEPS if (optimizer, options) == ("legacy_adam", CHUNKS) else 0)
    for name in (WORKER, *SERVERS):
        idle = cluster.wait_idle(name)
        assert idle["expectations"] == idle["mailboxes"] == 0


def test_a_step_returns_before_its_updates_and_others_see_it_finished(cluster):
    wanted, _ = train(cluster, STOCK, "plain")
    cluster.call(CHIEF, "functions.open_training", options={**CHUNKS, "partition_bytes": 0}, optimizer="plain")
    got = cluster.call(CHIEF, "functions.steps", count=1, look_every=3)
    cluster.call(WORKER, "functions.cap", rate_bps=300_000)  # a step's gradients take one second now
    try:
        for _ in range(2):
            got += cluster.call(CHIEF, "functions.steps", count=1)
            assert cluster.stats(WORKER)["background_outstanding"] == 1, cluster.stats(WORKER)
            assert sum(cluster.stats(name)["expectations"] for name in SERVERS) > 0
    finally:
        cluster.call(WORKER, "functions.cap", rate_bps=0)
    got += cluster.call(CHIEF, "functions.steps", count=1, look_every=3)
    assert got == wanted[: len(got)]


def test_an_error_of_an_update_arrives_and_the_next_step_trains(cluster):
    cluster.call(CHIEF, "functions.open_training", options=PLAIN, optimizer="by_hand", poisoned=True)
    cluster.call(CHIEF, "functions.steps", count=2)
    cluster.call(CHIEF, "functions.variables")
    failed = cluster.stats(WORKER)["background_failed"]
    said = cluster.call(CHIEF, "functions.poison")
    assert said and all("background update" in text and "Incompatible shapes" in text for text in said)
    assert cluster.stats(WORKER)["background_failed"] == failed + 1
    cluster.call(CHIEF, "functions.steps", count=2)
    cluster.call(CHIEF, "functions.variables")
    wait_until(lambda: cluster.stats(WORKER)["background_outstanding"] == 0, 30, "no update outstanding")
    assert cluster.stats(WORKER)["background_failed"] == failed + 1
