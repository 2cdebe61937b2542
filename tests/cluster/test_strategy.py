"""ParameterServerStrategy with tfsched: the bits of stock TensorFlow with one worker, every update once with several."""

import math

import pytest

from .cluster import STOCK, Cluster, wait_until

pytestmark = pytest.mark.timeout(400)
STEPS = 200
CROSSING = {"policy": "bytescheduler", "barrier": False}
# What the sums add up in which order must depend on nothing: oneDNN chooses by the number of idle threads.
FIXED = {name: {"TF_ENABLE_ONEDNN_OPTS": "0"} for name in ("ps0", "worker0", "chief0")}


@pytest.fixture(scope="module")
def pair(nursery):
    """A cluster of stock servers and one of tfsched's."""
    with (
        Cluster(protocol=STOCK, nursery=nursery, coordinator=True, environment=FIXED) as stock,
        Cluster(nursery=nursery, coordinator=True, environment=FIXED) as ours,
    ):
        yield stock, ours


@pytest.mark.parametrize(
    "loop,optimizer,options",
    [
        ("train", "sgd", {}),
        ("train", "sgd", CROSSING),
        ("train", "adam", CROSSING),
        ("fit", "sgd", CROSSING),
        ("fit", "adam", {}),
    ],
    ids=["sgd-ordered", "sgd-crossing", "adam-crossing", "fit-sgd-crossing", "fit-adam-ordered"],
)
def test_identical(pair, loop, optimizer, options):
    stock, ours = pair
    arguments = {"optimizer": optimizer, "steps": STEPS}
    before = ours.stats("worker0")["background_calls"], ours.stats("ps0")["tasks"], ours.stats("worker0")["steps"]
    wanted = stock.call("chief0", f"strategy.{loop}", limit_s=120, **arguments)
    got = ours.call("chief0", f"strategy.{loop}", limit_s=120, options=options, **arguments)
    assert got == wanted
    assert all(math.isfinite(float.fromhex(loss)) for loss in wanted["losses"])
    assert len(set(wanted["losses"])) == len(wanted["losses"]) > 1
    after = ours.settled("worker0")
    assert after["background_failed"] == 0
    assert after["background_calls"] - before[0] == (STEPS if options else 0)
    assert ours.stats("ps0")["tasks"] > before[1]
    if loop == "train":  # fit has steps of its own
        wait_until(lambda: ours.stats("worker0")["steps"] - before[2] >= STEPS, 20, "the last step's end")
        assert ours.stats("worker0")["steps"] - before[2] == STEPS


def test_steps_in_a_loop_are_ordered_and_identical(pair):
    stock, ours = pair
    arguments = {"optimizer": "sgd", "steps": 40, "steps_per_execution": 5}
    before = ours.stats("ps0")["tasks"]
    wanted = stock.call("chief0", "strategy.fit", limit_s=120, **arguments)
    options = {"policy": "bytescheduler", "partition_bytes": 4096}
    assert ours.call("chief0", "strategy.fit", limit_s=120, options=options, **arguments) == wanted
    # Within the loop: a pull of each layer's weights at least, in every turn.
    assert ours.stats("ps0")["tasks"] - before > 40 * 3


def test_checkpoints_hold_every_finished_step_and_training_goes_on_from_them(pair, tmp_path):
    stock, ours = pair
    arguments = {"optimizer": "adam", "steps": 30, "save_every": 10}
    options = {**CROSSING, "partition_bytes": 4096}
    wanted = stock.call("chief0", "strategy.train", limit_s=120, directory=str(tmp_path / "stock"), **arguments)
    got = ours.call("chief0", "strategy.train", limit_s=120, options=options, directory=str(tmp_path / "ours"), **arguments)
    assert got == wanted
    assert len(got["saved"]) == 3 and len(got["saved"][0]) >= 3 * 8  # weights, biases, two slots of each
    assert len({str(saved) for saved in got["saved"]}) == 3
    arguments["steps"] = 50
    straight = stock.call("chief0", "strategy.train", limit_s=120, directory=str(tmp_path / "straight"), **arguments)
    arguments["directory"] = str(tmp_path / "ours")
    resumed = ours.call("chief0", "strategy.train", limit_s=120, options=options, **arguments)
    assert len(resumed["losses"]) == 20
    assert resumed["losses"] == straight["losses"][30:]
    assert resumed["variables"] == straight["variables"]


def test_variables_in_shards(nursery):
    environment = {**FIXED, "ps1": FIXED["ps0"]}
    arguments = {"optimizer": "descent", "steps": 60, "shards": 2}
    with Cluster(protocol=STOCK, nursery=nursery, ps=2, coordinator=True, environment=environment) as stock:
        wanted = stock.call("chief0", "strategy.train", limit_s=120, **arguments)
    with Cluster(nursery=nursery, ps=2, coordinator=True, environment=environment) as ours:
        options = {**CROSSING, "partition_bytes": 4096}
        assert ours.call("chief0", "strategy.train", limit_s=120, options=options, **arguments) == wanted
        assert ours.stats("worker0")["background_calls"] == 60
        for server in ("ps0", "ps1"):  # each has a shard of every weight, and sends it
            assert ours.stats(server)["sent_ahead_used"] >= 4 * 58
    assert len(set(wanted["losses"])) == 60


def test_what_a_step_did_is_seen_once_it_has_returned(pair):
    _, ours = pair
    assert ours.call("chief0", "counting.visible", options=CROSSING) == []
    assert ours.stats("worker0")["background_calls"] > 0


def test_a_reader_does_not_wait_for_a_step_that_still_runs(pair):
    """Only for the updates of those that have returned: a step, or a closure of many, may take minutes."""
    before = pair[1].stats("worker0")["background_calls"]
    wanted = pair[0].call("chief0", "long_step.read_meanwhile", options=None)
    assert pair[1].call("chief0", "long_step.read_meanwhile", options=CROSSING) == wanted == [3.0, 7.0, 4.0, 4.0]
    assert pair[1].stats("worker0")["background_calls"] == before + 4
