"""All-reduces behind the step's end: training is that of stock, and whoever reads a variable sees a finished step."""

import re

import pytest

from .cluster import STOCK, Cluster, TaskError, wait_until
from .test_mirrored import everywhere

pytestmark = pytest.mark.timeout(540)
STEPS = 12
CROSSING = {"barrier": False}
SLOW = {"TFSCHED_EMULATED_BPS": "16e6"}  # two large gradients of 160 KB each: 160 ms
MODEL = "mirrored_crossing."
# A step's updates begin when the last step's are applied; the call that applied those may have yet to end.
OWN_AND_PERHAPS_THE_LAST = (1, 2)
REDUCED = "its reduced gradient, or one that is exchanged with it, is used in the step"


def mirrored(nursery, workers=2, slow=True, **arguments):
    environment = {f"worker{number}": SLOW for number in range(workers)} if slow else {}
    return Cluster(ps=0, workers=workers, nursery=nursery, mirrored=True, environment=environment, **arguments)


@pytest.fixture(scope="module")
def stock(nursery):
    with mirrored(nursery, protocol=STOCK, slow=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def pair(nursery):
    with mirrored(nursery) as cluster:
        yield cluster


def trained(cluster, own=None, steps=STEPS, **arguments):
    """Trains on all workers; (what each step has shown and the variables, how long steps took) of each."""
    everywhere(cluster, MODEL + "open_training", own, **arguments)
    made = everywhere(cluster, MODEL + "steps", count=steps)
    values = everywhere(cluster, MODEL + "variables")
    return [(one["shown"], value) for one, value in zip(made, values, strict=True)], [one["took_s"] for one in made]


@pytest.mark.parametrize(
    "arguments",
    [
        {"rule": "descent"},
        {"rule": "momentum", "dtype": "bfloat16"},
        {"rule": "sgd"},
        {"rule": "adam"},
        {"rule": "descent", "clip": True},
    ],
    ids=lambda arguments: "-".join(map(str, arguments.values())),
)
def test_identical_to_stock(stock, pair, arguments):
    wanted, _ = trained(stock, **arguments)
    before = pair.stats("worker0")
    got, _ = trained(pair, options=CROSSING, **arguments)
    assert got == wanted
    assert got[0][1] == got[1][1] and got[0][0] != got[1][0]
    after = pair.settled("worker0")
    assert after["background_calls"] - before["background_calls"] == STEPS
    assert after["background_failed"] == after["all_reduces_failed"] == 0
    assert after["all_reduces"] - before["all_reduces"] >= 3 * STEPS and after["packs_stock"] == 0
    report = pair.call("worker0", MODEL + "report")
    assert report["crossing"] >= 8 and report["kept"] == {} and report["errors"] == 0, report


def test_a_step_returns_before_its_updates_and_a_plain_loop_waits_for_nothing_else(pair):
    everywhere(pair, MODEL + "open_training", options=CROSSING)
    everywhere(pair, MODEL + "steps", count=2)
    everywhere(pair, MODEL + "variables")
    before = pair.stats("worker0")["background_calls"]
    made = everywhere(pair, MODEL + "step_and_look", kind="numpy")
    assert all(one["under_way"] in OWN_AND_PERHAPS_THE_LAST for one in made), made
    assert pair.stats("worker0")["background_calls"] == before + 1
    assert everywhere(pair, MODEL + "waits") == [[], []]


KINDS = [
    "numpy",
    "eager",
    "checkpoint",
    "traced",
    "new",
    "with barrier",
    "drain",
    "disable",
    "assign",
    "assign in a function",
]


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_reads_a_variable_sees_a_finished_step(stock, pair, kind):
    def looked(cluster, options, kind):
        everywhere(cluster, MODEL + "open_training", options=options)
        seen = []
        for _ in range(3):
            everywhere(cluster, MODEL + "steps", count=1)
            seen.append(everywhere(cluster, MODEL + "step_and_look", kind=kind))
        values = everywhere(cluster, MODEL + "variables")
        return [[(one["shown"], one["values"]) for one in both] for both in seen], values, seen

    plain = kind if kind in ("assign", "assign in a function") else "numpy"
    wanted, values, _ = looked(stock, None, plain)
    got, end, seen = looked(pair, CROSSING, kind)
    assert (got, end) == (wanted, values)
    # disable() ends it for all later steps.
    under_way = [one["under_way"] for both in seen[: 1 if kind == "disable" else 3] for one in both]
    assert all(number in OWN_AND_PERHAPS_THE_LAST for number in under_way), under_way


def test_what_the_step_shows_keeps_the_barrier(stock, pair):
    # A small tensor keeps those that it is exchanged with.
    for seen, kept, reason in (("norm", 8, REDUCED), ("variable", 6, "its value is used after the update")):
        wanted, _ = trained(stock, seen=seen, steps=4)
        got, _ = trained(pair, options=CROSSING, seen=seen, steps=4)
        assert got == wanted
        report = pair.call("worker0", MODEL + "report")
        assert len(report["kept"]) == kept and {reason} <= set(report["kept"].values()) <= {reason, REDUCED}, report
    assert "within the step all the same" in pair.log("worker0")


@pytest.mark.parametrize("steps_per_execution", [1, 4])
def test_fit_is_identical(stock, pair, steps_per_execution):
    wanted = everywhere(stock, "mirrored.fit", steps_per_execution=steps_per_execution)
    before = pair.stats("worker0")
    assert everywhere(pair, "mirrored.fit", options=CROSSING, steps_per_execution=steps_per_execution) == wanted
    after = pair.stats("worker0")
    # Updates within a loop keep the barrier.
    calls = 16 if steps_per_execution == 1 else 0
    assert after["background_calls"] - before["background_calls"] == calls
    assert after["packs_scheduled"] - before["packs_scheduled"] >= 16


def test_three_workers_are_alike_and_as_with_the_barrier(nursery):
    with mirrored(nursery, workers=3) as cluster:
        options = {"partition_bytes": 8192}
        wanted, _ = trained(cluster, options=options, rule="adam", steps=6)
        got, _ = trained(cluster, options={**options, **CROSSING}, rule="adam", steps=6)
        assert got == wanted and got[0][1] == got[1][1] == got[2][1]
        assert cluster.stats("worker2")["background_calls"] == 6


@pytest.mark.parametrize("killed", ["worker0", "worker2"])
def test_a_member_that_is_killed_while_updates_are_under_way(nursery, killed):
    with mirrored(nursery, workers=3) as cluster:
        everywhere(cluster, "mirrored.begin", options=CROSSING, pause_s=0)
        left = [name for name in cluster.names if name != killed]
        wait_until(lambda: cluster.call(left[0], "mirrored.progress")["steps"] > 3, 90, "training")
        assert cluster.stats(left[0])["background_calls"] > 3
        wait_until(lambda: cluster.stats(killed)["background_outstanding"] > 0, 30, "updates under way")
        cluster.kill(killed)
        for name in left:
            error = wait_until(lambda name=name: cluster.call(name, "mirrored.progress")["error"], 30, f"an error in {name}")
            assert re.search(f"task:{killed[-1]}", error["message"]), error
            wait_until(lambda name=name: cluster.stats(name)["background_outstanding"] == 0, 30, f"no update in {name}")
        with pytest.raises(TaskError):
            cluster.call(left[0], "mirrored.train", options=CROSSING, steps=1, limit_s=60)


def test_an_update_that_fails_is_told_by_the_next_step(nursery):
    with mirrored(nursery) as cluster:
        everywhere(cluster, MODEL + "open_training", options=CROSSING, poisoned=True)
        everywhere(cluster, MODEL + "steps", count=2)
        for said in everywhere(cluster, MODEL + "poison"):
            assert said["made"] == 1 and "background update of an earlier step" in said["text"], said
            assert "AssignSubVariableOp" in said["text"], said
        everywhere(cluster, MODEL + "steps", count=2)
        first, second = everywhere(cluster, MODEL + "variables")
        assert first == second and cluster.stats("worker0")["background_failed"] == 1


def test_drains_that_tell_of_failed_updates_leave_nothing_behind(nursery):
    with mirrored(nursery) as cluster:
        everywhere(cluster, MODEL + "open_training", options=CROSSING, poisoned=True)
        everywhere(cluster, MODEL + "steps", count=2)
        for found in everywhere(cluster, MODEL + "drained_failures", count=8):
            assert all("background update of an earlier step failed" in (said or "") for said in found["said"]), found
            assert found["made"] <= 1, found


def test_with_a_dataset_that_reads_variables_steps_keep_the_barrier(pair):
    everywhere(pair, MODEL + "open_training", options=CROSSING)
    everywhere(pair, MODEL + "steps", count=1)
    for told in everywhere(pair, MODEL + "read_in_dataset"):
        assert told["outstanding"] == 0 and len({by_name for _, by_name in told["seen"]}) == 3
        # The dataset is made while the first step's updates are under way.
        assert told["seen"][0][0] == told["seen"][0][1], told
        # A dataset may be an element ahead, in stock TensorFlow as well.
        assert {in_dataset for in_dataset, _ in told["seen"]} <= {by_name for _, by_name in told["seen"]}, told
    assert "a dataset's function uses a variable" in pair.log("worker0")
