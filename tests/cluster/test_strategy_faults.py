"""Several workers under a coordinator, in peace and with tasks that die or hang: no update is lost, none is made up."""

import time

import pytest

from tfsched.bench.ports import free_ports
from tfsched.bench.testbed import Testbed, netns_available

from .cluster import Cluster, TaskError, cut_network, often, wait_until

pytestmark = pytest.mark.timeout(400)
STEPS = 500
CROSSING = {"policy": "bytescheduler", "barrier": False}
IN_CHUNKS = {**CROSSING, "partition_bytes": 4096, "credit_bytes": 8192}
KILLS = ("worker0", "worker1")
ATTEMPTS = 4  # of what has to happen by chance


@pytest.fixture(scope="module")
def cluster(nursery):
    with Cluster(workers=2, nursery=nursery, coordinator=True) as cluster:
        yield cluster


def reached(cluster, steps, pending):
    """Waits until so many steps have returned."""
    wait_until(lambda: pending.done() or cluster.call("chief0", "counting.progress") >= steps, 120, f"{steps} steps")
    assert not pending.done(), "it ended before the fault"


def times_applied(result, steps=STEPS):
    """How often each step was applied; each variable must say at least once."""
    assert all(len(counts) == steps and min(counts) >= 1 for counts in result["counts"])
    return [max(counts) for counts in zip(*result["counts"], strict=True)]


def test_every_update_once(cluster):
    result = cluster.call("chief0", "counting.count", options=CROSSING, steps=STEPS, limit_s=120)
    assert set(times_applied(result)) == {1}
    assert result["given back"] == 0
    calls = [cluster.stats(name)["background_calls"] for name in KILLS]
    assert sum(calls) == STEPS and min(calls) > 0


def until_one_is_behind(cluster, attempt):
    """Runs ``attempt`` until ps0 has used a value that another worker's update had overtaken; that may take a few runs."""
    before = cluster.stats("ps0")["sent_ahead_behind"]
    for _ in range(ATTEMPTS):
        attempt()
        if cluster.stats("ps0")["sent_ahead_behind"] > before:
            return
    raise AssertionError(f"in {ATTEMPTS} runs of {STEPS} steps no value was used that another worker's update had overtaken")


def test_every_update_once_where_chunks_of_two_workers_meet(cluster):
    def attempt():
        result = cluster.call("chief0", "counting.count", options=IN_CHUNKS, steps=STEPS, limit_s=120)
        assert set(times_applied(result)) == {1}

    # Both worked on the same variables at the same time, and what had been sent to the other was used all the same.
    until_one_is_behind(cluster, attempt)
    stats = cluster.stats("ps0")
    assert stats["updates_whole_after_all"] > 0
    assert stats["updates_in_chunks"] == 0


@pytest.mark.parametrize("options", [CROSSING, IN_CHUNKS], ids=["whole", "chunks"])
def test_a_step_sees_its_workers_own_updates_and_everything_before_a_join(cluster, options):
    rounds = 5

    def attempt():
        rows = cluster.call("chief0", "counting.seen", options=options, steps=STEPS, rounds=rounds, limit_s=120)
        own = {}
        for worker, turn, seen in rows:
            before = turn * STEPS // rounds  # steps that were joined
            assert before + own.get((worker, turn), 0) <= seen <= before + STEPS // rounds
            own[worker, turn] = own.get((worker, turn), 0) + 1
        assert len({worker for worker, _ in own}) == 2

    if options is IN_CHUNKS:
        until_one_is_behind(cluster, attempt)
    else:
        attempt()


def test_a_worker_that_hangs(cluster):
    pending = cluster.submit("chief0", "counting.count", options=CROSSING, steps=STEPS)
    reached(cluster, 50, pending)
    cluster.stop("worker0")
    time.sleep(2)
    cluster.resume("worker0")
    assert set(times_applied(pending.result(120))) == {1}


def test_a_network_that_is_gone_for_two_seconds(nursery):
    available, reason = netns_available()
    if not available:
        pytest.skip(reason)
    names = ["ps0", *KILLS, "chief0"]
    with Testbed(names) as testbed, Cluster(nursery=nursery, workers=2, testbed=testbed, coordinator=True) as cluster:
        pending = cluster.submit("chief0", "counting.count", options=CROSSING, steps=STEPS)
        for cuts in range(2):
            reached(cluster, 100 + 150 * cuts, pending)
            cut_network(testbed, KILLS)
        result = pending.result(180)
        # TCP brings what was on the links again: nobody is lost, so nothing is run again.
        assert set(times_applied(result)) == {1}
        assert result["given back"] == 0


@pytest.mark.parametrize(
    ("options", "data"), [(CROSSING, False), (IN_CHUNKS, False), (CROSSING, True)], ids=["whole", "chunks", "datasets"]
)
def test_workers_that_die(cluster, options, data):
    kills = often(10, 4)
    steps = 3 * STEPS * kills // 10
    pending = cluster.submit("chief0", "counting.count", options=options, steps=steps, data=data)
    for kill in range(kills):
        reached(cluster, (kill + 1) * steps // (kills + 1), pending)
        cluster.kill(KILLS[kill % 2])
        cluster.restart(KILLS[kill % 2])
    result = pending.result(180)
    # What was under way, and what had not been confirmed, was run again; what was applied of it was not applied again.
    assert set(times_applied(result, steps)) == {1}
    assert "beside the coordinator's closures" not in cluster.log("chief0")


@pytest.mark.parametrize("options", [{}, CROSSING], ids=["ordered", "crossing"])
def test_no_call_begins_while_the_cluster_learns_of_a_worker_that_came_back(cluster, options):
    """TensorFlow may lose sight of an argument that is copied meanwhile, and then the call waits for it for ever."""
    pending = cluster.submit("chief0", "counting.count_around_updates", options=options, steps=STEPS)
    reached(cluster, STEPS // 5, pending)
    cluster.kill("worker1")
    time.sleep(1)  # the other one goes on meanwhile
    cluster.restart("worker1")
    result = pending.result(120)
    assert result["rounds"] >= 1 and all(min(counts) >= result["rounds"] for counts in result["counts"])
    assert result["updates"] >= 1
    assert result["close"] == 0


@pytest.mark.parametrize("options", [CROSSING, IN_CHUNKS], ids=["whole", "chunks"])
def test_a_worker_that_dies_between_two_updates(cluster, options):
    steps, variables = 20, 4

    def both_work():  # the coordinator takes its time until it uses a worker that has come back
        cluster.call("chief0", "counting.count", options=options, steps=steps)
        return all(cluster.stats(name)["background_calls"] > 0 for name in KILLS)

    wait_until(both_work, 60, "steps on both workers")
    made_before = cluster.stats("ps0")["updates_made_before"]
    cluster.call("worker0", "configure.change", rate_bps=100e3)  # more than a second for each gradient
    pending = cluster.submit("chief0", "counting.count", options=options, steps=steps)

    def between():
        # worker1 has done all the rest, worker0 has returned one step and waits with the next until that is applied.
        alone = cluster.call("chief0", "counting.progress") == steps - 1
        return alone and 0 < cluster.stats("ps0")["expectations"] < variables

    wait_until(between, 60, "a step that is applied in part")
    cluster.kill("worker0")
    cluster.restart("worker0")
    assert set(times_applied(pending.result(60), steps)) == {1}
    assert cluster.stats("ps0")["updates_made_before"] > made_before


def test_functions_beside_the_closures_are_said_once(nursery):
    with Cluster(workers=2, nursery=nursery, coordinator=True) as cluster:
        result = cluster.call("chief0", "counting.count_beside", options=CROSSING, steps=20)
        assert set(times_applied(result, 20)) == {1}
        assert cluster.log("chief0").count("may be applied twice") == 1


def test_a_coordinator_whose_process_joins_another_cluster(nursery):
    steps = 8
    with (
        Cluster(workers=3, nursery=nursery, coordinator=True) as left,
        Cluster(nursery=nursery) as joined,
    ):
        left.call("chief0", "counting.count", options=CROSSING, steps=steps)  # it knows by now which functions cross
        before = [left.stats(name)["background_calls"] for name in ("worker0", "worker1", "worker2")]
        for name in ("worker0", "worker1", "worker2"):
            left.call(name, "configure.change", rate_bps=1e6)  # a tenth of a second for each gradient
        other = {**joined.addresses(), "chief": [f"127.0.0.1:{free_ports(1)[0]}"]}
        result = left.call("chief0", "counting.elsewhere", options=CROSSING, other=other, steps=steps, limit_s=100)
        assert result["unconfirmed"] > 0 == result["left"]
        assert result["given back"] == 0
        assert set(times_applied(result, steps)) == {1}
        stats = [left.settled(name) for name in ("worker0", "worker1", "worker2")]
        assert sum(one["background_calls"] for one in stats) - sum(before) == steps
        assert all(one["background_failed"] == 0 for one in stats)
        assert "beside the coordinator's closures" not in left.log("chief0")


@pytest.mark.parametrize("options", [{}, CROSSING], ids=["ordered", "crossing"])
def test_what_is_queued_behind_an_error_does_not_run(cluster, options):
    result = cluster.call("chief0", "counting.behind_an_error", options=options, steps=STEPS, limit_s=120)
    assert result["error"] == "told"
    # Until join() hears of the error the workers go on, as on stock TensorFlow: there it is 0 to 3.
    assert max(map(sum, result["counts"])) <= 20
    assert result["cancelled"] >= STEPS - 20


def test_a_parameter_server_that_dies(cluster):
    pending = cluster.submit("chief0", "counting.count", options=CROSSING, steps=STEPS)
    reached(cluster, 50, pending)
    cluster.kill("ps0")
    with pytest.raises(TaskError) as caught:
        pending.result(120)
    assert caught.value.kind in ("UnavailableError", "PSUnavailableError", "AbortedError")
    assert "/job:ps" in caught.value.message
