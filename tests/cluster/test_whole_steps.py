"""Whoever reads or writes a variable sees a finished step: whatever ran first, in whichever session, on slow links."""

import pytest

from .cluster import STOCK, Cluster

pytestmark = pytest.mark.timeout(300)
CROSSING = {"barrier": False}
SLOW = {"TFSCHED_EMULATED_BPS": "100000000"}
STEPS = 4
SIDE = 150  # an update takes some 7 ms of the link


def start(nursery, workers=1, **more):
    names = ["ps0", *(f"worker{number}" for number in range(workers))]
    return Cluster(nursery=nursery, workers=workers, environment=dict.fromkeys(names, SLOW), **more)


@pytest.fixture(scope="module")
def slow(nursery):
    """One parameter server and two workers behind slow links."""
    with start(nursery, workers=2) as cluster:
        yield cluster


def counted(cluster, options=CROSSING, name="worker0", **arguments):
    """What a reader sees right after each step, and whether steps did cross."""
    before = cluster.stats(name)["background_done"]
    found = cluster.call(
        name, "whole_steps.reads_after_each_step", limit_s=120, options=options, steps=STEPS, side=SIDE, **arguments
    )
    assert cluster.settled(name)["background_done"] >= before + STEPS
    return found


def down(steps=STEPS):
    """One less after each step."""
    return [-float(step) for step in range(1, steps + 1)]


@pytest.mark.parametrize("second", [None, "config", "broken", "stock"])
@pytest.mark.parametrize("first", ["nothing", "read", "save"])
def test_a_read_sees_the_step_that_has_returned(slow, first, second):
    assert counted(slow, first=first, second=second) == down()


@pytest.mark.parametrize("second", [None, "config", "stock"])
def test_an_assignment_follows_the_step_that_has_returned(slow, second):
    assert counted(slow, first="add", second=second) == [1000.0 + 999 * step for step in range(1, STEPS + 1)]


@pytest.mark.parametrize("second", [None, "stock"])
def test_reads_within_a_loop_see_it(slow, second):
    assert counted(slow, first="looped", second=second) == [3.0 * 4 * SIDE * SIDE * value for value in down()]


def test_a_drain_that_came_before_all_training_drains_later(slow):
    assert counted(slow, first="drain") == [0] * STEPS


@pytest.mark.parametrize("first", ["nothing", "read"])
def test_a_session_of_another_master_sees_it(slow, first):
    assert counted(slow, first=first, second="config", target=slow.target("worker1")) == down()


@pytest.mark.parametrize("others", [CROSSING, {"barrier": True}], ids=["both cross", "one crosses"])
@pytest.mark.parametrize("master", [None, "worker1", "ps0"])
def test_two_sessions_that_train_in_turns_see_each_others_steps(slow, master, others):
    """Whatever their configs and masters: one program knows in which order its steps returned."""
    arguments = {"others": others, "target": master and slow.target(master), "steps": STEPS, "side": SIDE}
    read, end = slow.call("worker0", "whole_steps.trained_in_turns", limit_s=120, options=CROSSING, **arguments)
    assert read == [0.0, *down(2 * STEPS - 1)] and end == -2.0 * STEPS


def test_a_session_does_not_wait_for_what_was_sent_while_none_was_open(slow):
    """Where the master is another process, closing a session waits for nothing: values are sent ahead to nobody."""
    arguments = {"target": slow.target("ps0"), "steps": STEPS, "side": 2 * SIDE, "pause_s": 0.5}
    before = slow.stats("ps0")
    read = slow.call("worker0", "whole_steps.trained_one_after_another", limit_s=120, options=CROSSING, **arguments)
    assert read == [0.0, *down(STEPS - 1)]
    after = slow.stats("ps0")
    assert after["sent_ahead"] > before["sent_ahead"] and after["sent_ahead_used"] == before["sent_ahead_used"]


@pytest.mark.parametrize("hook", [False, True])
def test_checkpoints_of_the_stock_saver_hook_are_whole(nursery, tmp_path, hook):
    """The hook writes a checkpoint at step 0, before any training graph was seen."""
    held = {}
    for name, options, more in (("stock", None, {"protocol": STOCK}), ("crossing", CROSSING, {})):
        slow = {"TFSCHED_EMULATED_BPS": "200000000"}
        environment = {} if name == "stock" else {"ps0": slow, "worker0": slow}
        with Cluster(nursery=nursery, environment=environment, **more) as cluster:
            held[name] = cluster.call(
                "worker0",
                "whole_steps.monitored",
                limit_s=200,
                options=options,
                directory=str(tmp_path / f"{name}"),
                steps=20,
                save_steps=5,
                hook=hook and options is not None,
            )
    assert len(held["stock"]) == 5 and sum(map(len, held["stock"].values())) == 85
    assert held["crossing"] == held["stock"]
