"""The ops that cross the barrier, in a graph written by hand, on real clusters."""

import statistics

import pytest

from tfsched.bench.ports import free_port

from .cluster import STOCK, Cluster, TaskError, wait_until
from .test_long_run import sample

pytestmark = pytest.mark.timeout(300)

HOME = "worker0"
TASKS = ("ps0", HOME)


def failure(call, *arguments, **keywords):
    """The TaskError that the call ends with."""
    with pytest.raises(TaskError) as caught:
        call(*arguments, **keywords)
    print(caught.value.kind, caught.value.message.splitlines()[:4])
    return caught.value


def open_training(cluster, name=HOME, **arguments):
    cluster.call(name, "barrier.open_training", limit_s=120, **arguments)


def steps(cluster, count=1, name=HOME, **arguments):
    return cluster.call(name, "barrier.steps", limit_s=120, count=count, **arguments)


def wait_idle(cluster, names=TASKS):
    """Waits until nothing of any background update is left in the tasks."""
    held = ("background_outstanding", "mailboxes", "expectations")

    def idle():
        seen[:] = [{key: cluster.stats(name)[key] for key in held} for name in names]
        return not any(value for one in seen for value in one.values())

    seen = []
    try:
        wait_until(idle, 30, "nothing left over")
    except AssertionError as error:
        raise AssertionError(f"{error}; last seen: {seen}") from None


def synchronous(nursery, count, ps=1, **arguments):
    """The losses and variables of ``count`` plain steps."""
    with Cluster(nursery=nursery, ps=ps) as cluster:
        open_training(cluster, client=None, **arguments)
        return steps(cluster, count), cluster.call(HOME, "barrier.digests")


def test_two_hundred_steps_are_those_of_synchronous_training(nursery):
    with Cluster(nursery=nursery, ps=2) as cluster:
        open_training(cluster, client=None)
        losses = steps(cluster, 200)
        variables = cluster.call(HOME, "barrier.digests")
        cluster.call(HOME, "barrier.close")

        open_training(cluster, client="a")
        assert steps(cluster, 200) == losses
        assert cluster.call(HOME, "barrier.digests") == variables
        assert len(set(losses)) == 200
        stats = cluster.settled(HOME)
        assert stats["background_calls"] == stats["background_done"] == 200
        assert stats["background_failed"] == 0
        waited = [cluster.stats(name) for name in ("ps0", "ps1")]
        assert all(one["waits"] >= 200 for one in waited)  # the session's other waits are the pass's
        assert all(one["waits_blocked"] <= one["waits"] and one["wait_us_total"] >= 0 for one in waited)
        wait_idle(cluster, ("ps0", "ps1", HOME))


def test_a_step_returns_before_its_updates_and_the_next_one_waits_for_them(nursery):
    with Cluster(nursery=nursery) as cluster:
        open_training(cluster, client="a", gated=True)
        before = cluster.call(HOME, "barrier.digests")
        first = steps(cluster)  # returns, though the first variable's update is held
        assert cluster.stats(HOME)["background_outstanding"] == 1
        assert cluster.stats("ps0")["expectations"] >= 1
        second = cluster.submit(HOME, "barrier.steps", count=1)
        wait_until(lambda: cluster.stats("ps0")["waits_blocked"] > 0, 30, "a blocked wait")
        assert not second.done()
        assert cluster.call(HOME, "barrier.native_drain", timeout_ms=100) == [1]
        error = failure(cluster.call, HOME, "barrier.fetch", what="short_drain")
        assert error.kind == "DeadlineExceededError"
        assert "1 background update(s) of this training are still outstanding" in error.message
        assert not second.done()

        for _ in range(2):
            cluster.call(HOME, "barrier.fetch", what="open_gate")
        assert second.result() != first
        assert cluster.call(HOME, "barrier.digests") != before
        assert cluster.call(HOME, "barrier.native_drain", timeout_ms=30_000) == [0]
        assert cluster.stats("ps0")["wait_us_total"] > 0
        wait_idle(cluster)


def test_an_error_in_the_background_is_raised_once_by_the_next_step(nursery):
    losses, variables = synchronous(nursery, 8)
    with Cluster(nursery=nursery) as cluster:
        open_training(cluster, client="a", gated=True)

        def let_updates(count):
            for _ in range(count):
                cluster.call(HOME, "barrier.fetch", what="open_gate")

        let_updates(4)
        assert steps(cluster, 4) == losses[:4]
        steps(cluster, poison=1.0, first=100)  # is told nothing: its update fails when it is over
        let_updates(1)
        error = failure(steps, cluster, first=101)
        assert error.kind == "InvalidArgumentError"
        assert "tfsched: the background update of an earlier step failed:" in error.message
        assert "the update's own error" in error.message
        stats = cluster.stats(HOME)
        assert stats["background_failed"] == 1
        # Training goes on: from the beginning again, the values are the right ones.
        cluster.call(HOME, "barrier.fetch", what="inits")
        let_updates(8)
        assert steps(cluster, 8) == losses
        assert cluster.call(HOME, "barrier.digests") == variables

        # A drain tells it as well as a step, and then the next step does not.
        steps(cluster, poison=1.0)
        let_updates(1)
        error = failure(cluster.call, HOME, "barrier.fetch", what="drain")
        assert "the update's own error" in error.message
        let_updates(1)
        steps(cluster)
        cluster.call(HOME, "barrier.fetch", what="drain")
        assert cluster.stats(HOME)["background_failed"] == 2
        wait_idle(cluster)


def test_an_error_in_the_background_that_is_known_in_time_is_the_steps_own(nursery):
    with Cluster(nursery=nursery) as cluster:
        open_training(cluster, client="a")
        seen = []
        for number in range(5):
            # Whether the update fails before the step has joined it or after is a race; it is told once all the same.
            for feeds in ({"poison": 1.0}, {}):
                try:
                    steps(cluster, first=number, **feeds)
                except TaskError as error:
                    assert "the update's own error" in error.message
                    seen.append("of this step" in error.message)
        assert len(seen) == 5
        assert cluster.stats(HOME)["background_failed"] == 5
        cluster.call(HOME, "barrier.fetch", what="drain")
        wait_idle(cluster)


@pytest.mark.parametrize("unopened", [False, True], ids=["before the last Put", "before any mailbox is open"])
def test_a_failing_step_reports_its_own_error_and_the_next_one_nothing(nursery, unopened):
    losses, variables = synchronous(nursery, 6)
    with Cluster(nursery=nursery) as cluster:
        open_training(cluster, client="a", unopened=unopened)
        assert steps(cluster, 3) == losses[:3]
        for _ in range(3):
            error = failure(steps, cluster, bad=1.0)
            assert error.kind == "InvalidArgumentError"
            assert "the step's own error" in error.message
            steps(cluster, first=50)
        cluster.call(HOME, "barrier.fetch", what="drain")
        wait_idle(cluster)
        assert cluster.stats(HOME)["background_failed"] == 0
        cluster.call(HOME, "barrier.fetch", what="inits")
        assert steps(cluster, 6) == losses
        assert cluster.call(HOME, "barrier.digests") == variables


def test_a_worker_killed_in_mid_push_and_a_new_one(nursery):
    losses, variables = synchronous(nursery, 5)
    with Cluster(nursery=nursery) as cluster:
        open_training(cluster, client="a", gated=True)
        steps(cluster)
        assert cluster.stats("ps0")["expectations"] >= 1
        cluster.kill(HOME)
        # Nobody will end this update but the parameter server itself, when its connection breaks.
        wait_idle(cluster, ("ps0",))
        cluster.restart(HOME)
        open_training(cluster, client="b")
        assert steps(cluster, 5) == losses
        assert cluster.call(HOME, "barrier.digests") == variables
        wait_idle(cluster)


def test_a_parameter_server_killed_and_restarted(nursery):
    losses, variables = synchronous(nursery, 5)
    with Cluster(nursery=nursery) as cluster:
        open_training(cluster, client="a", gated=True)
        steps(cluster)
        step = cluster.submit(HOME, "barrier.steps", count=1)
        wait_until(lambda: cluster.stats("ps0")["waits_blocked"] > 0, 30, "a blocked wait")
        cluster.kill("ps0")
        error = failure(step.result, 60)
        assert error.kind in ("UnavailableError", "AbortedError")
        wait_until(lambda: cluster.stats(HOME)["background_outstanding"] == 0, 60, "the end of the lost update")
        cluster.restart("ps0")
        cluster.call(HOME, "barrier.close")

        # The same client in a new session: at most one run hears of the lost update, with an error that means "try again".
        open_training(cluster, client="a")
        errors = []
        while True:
            try:
                trained = steps(cluster, 5)
                break
            except TaskError as caught:
                errors.append(caught)
                assert len(errors) == 1, [str(error) for error in errors]
                assert caught.kind in ("UnavailableError", "AbortedError")
                assert "tfsched: the background update of an earlier step failed:" in caught.message
        assert trained == losses
        assert cluster.call(HOME, "barrier.digests") == variables
        wait_idle(cluster)


def test_a_failed_update_names_the_server_that_died_where_another_one_keeps_it_from_ending(nursery):
    """A coordinator waits for ever for the worker that reports such an error without the name of a server."""
    with Cluster(nursery=nursery, ps=2) as cluster:
        open_training(cluster, client="a", gated=True)
        steps(cluster)
        cluster.stop("ps1")
        cluster.kill("ps0")
        error = failure(cluster.call, HOME, "barrier.fetch", limit_s=60, what="drain")
        assert error.kind == "UnavailableError"
        assert "tfsched: /job:ps/replica:0/task:0 does not answer any more" in error.message
        assert cluster.call(HOME, "barrier.is_a_servers_failure", message=error.message)


def test_a_failed_update_names_the_server_that_hangs(nursery):
    with Cluster(nursery=nursery, ps=2) as cluster:
        open_training(cluster, client="a", layers=3, gated=True)  # the last one, which fails, is on ps0
        steps(cluster, poison=1.0)
        cluster.stop("ps1")
        cluster.call(HOME, "barrier.fetch", what="open_gate")
        error = failure(cluster.call, HOME, "barrier.fetch", limit_s=60, what="drain")
        assert error.kind == "UnavailableError"
        assert "tfsched: /job:ps/replica:0/task:1 does not answer any more" in error.message
        assert cluster.call(HOME, "barrier.is_a_servers_failure", message=error.message)
        cluster.resume("ps1")
        wait_idle(cluster, ("ps0", "ps1", HOME))


def test_a_session_closed_with_an_update_outstanding(nursery):
    _, variables = synchronous(nursery, 1)
    with Cluster(nursery=nursery) as cluster:
        open_training(cluster, client="a", gated=True)
        open_training(cluster, called="beside", client=None, init=False, gated=True)
        steps(cluster)
        assert cluster.stats(HOME)["background_outstanding"] == 1
        cluster.call(HOME, "barrier.close")
        assert cluster.stats(HOME)["background_outstanding"] == 1
        cluster.call(HOME, "barrier.fetch", called="beside", what="open_gate")
        assert cluster.call(HOME, "barrier.native_drain", timeout_ms=30_000) == [0]
        assert cluster.call(HOME, "barrier.digests", called="beside") == variables
        wait_idle(cluster)


def test_two_workers_train_the_same_variables(nursery):
    with Cluster(nursery=nursery, workers=2) as cluster:
        open_training(cluster, client="a")
        open_training(cluster, name="worker1", client="b", init=False)
        both = [cluster.submit(name, "barrier.steps", count=50) for name in (HOME, "worker1")]
        assert [len(pending.result(120)) for pending in both] == [50, 50]
        for name in (HOME, "worker1"):
            cluster.call(name, "barrier.fetch", what="drain")
            assert cluster.stats(name)["background_done"] == 50
        # One that dies leaves the other alone.
        cluster.kill("worker1")
        assert len(steps(cluster, 20)) == 20
        wait_idle(cluster)


def test_a_task_that_holds_its_own_variables_and_two_servers_in_one_process(nursery):
    losses, variables = synchronous(nursery, 20)
    port = free_port()
    with Cluster(nursery=nursery) as cluster:
        cluster.call(HOME, "barrier.open_solo", port=port, client="a")
        open_training(cluster, client="a", init=False)
        # The other server's variables have their names, and are others.
        open_training(cluster, called="plain", client=None)
        both = [cluster.submit(HOME, "barrier.steps", count=20, called=called) for called in ("solo", "main")]
        for pending in both:
            assert pending.result(120) == losses
        for called in ("solo", "main"):
            assert cluster.call(HOME, "barrier.digests", called=called) == variables
        stats = cluster.settled(HOME)
        assert stats["servers"] == 2
        assert stats["background_done"] == 40
        assert stats["waits"] == 40
        wait_idle(cluster)


def test_sessions_that_background_updates_cannot_serve(nursery):
    with Cluster(nursery=nursery) as cluster:
        open_training(cluster, client="a", isolated=True)
        error = failure(steps, cluster)
        assert error.kind == "FailedPreconditionError"
        assert "set isolate_session_state=False" in error.message
    with Cluster(nursery=nursery, protocols={HOME: STOCK}, load=(HOME,)) as cluster:
        open_training(cluster, client="a")
        error = failure(steps, cluster)
        assert error.kind == "FailedPreconditionError"
        assert "has no tfsched server" in error.message


def test_a_parameter_server_that_stands_still_when_the_first_update_begins(nursery):
    with Cluster(nursery=nursery, ps=2) as cluster:
        open_training(cluster, client="a", held=True, timeout_ms=15_000)
        step = cluster.submit(HOME, "barrier.steps", count=1)
        cluster.call(HOME, "barrier.fetch", what="await_step")  # by now ps1 has answered that it waited
        cluster.stop("ps1")
        cluster.call(HOME, "barrier.fetch", what="let_step")
        wait_until(lambda: cluster.stats(HOME)["background_calls"] == 1, 30, "a beginning update")
        error = failure(step.result, 60)
        assert error.kind == "DeadlineExceededError"  # the session's own limit; ours would have been longer
        assert cluster.stats(HOME)["background_outstanding"] == 0
        cluster.resume("ps1")
        for _ in range(3):
            cluster.call(HOME, "barrier.fetch", what="let_step")
        assert len(steps(cluster, 3)) == 3
        cluster.call(HOME, "barrier.fetch", what="drain")
        wait_idle(cluster, ("ps0", "ps1", HOME))


def test_the_end_of_a_process_waits_for_its_updates(nursery):
    with Cluster(nursery=nursery, environment={HOME: {"TFSCHED_DRAIN_TIMEOUT_S": "2"}}) as cluster:
        open_training(cluster, client="a", gated=True)
        steps(cluster)
        assert cluster.call(HOME, "barrier.end_python") >= 2
        assert cluster.log(HOME).count("this process ends with 1 background update(s) outstanding after 2 s") == 1
    with Cluster(nursery=nursery) as cluster:
        open_training(cluster, client="a", gated=True)
        steps(cluster)
        ending = cluster.submit(HOME, "barrier.end_python")
        assert not ending.done()
        cluster.call(HOME, "barrier.fetch", what="open_gate")
        assert ending.result() < 30
        assert "this process ends with" not in cluster.log(HOME)
        assert cluster.stats(HOME)["background_done"] == 1


def test_an_update_that_failed_in_one_attempt_is_made_by_the_next(nursery):
    """Several attempts at one closure, whose number they bear: one makes its update, and one that fails is not the one."""
    first, second = (7, 0), (8, 0)

    def attempt(elements, epoch, again=()):
        return cluster.call(HOME, "attempts.attempt", elements=elements, epoch=epoch, again=again)

    with Cluster(nursery=nursery) as cluster:
        cluster.call(HOME, "attempts.open_attempts", limit_s=120)
        error, value = attempt(3, first[0])
        assert "Shape mismatch" in error or "shape" in error
        assert value == [0, 0]
        assert attempt(2, 100, again=first) == ["", [1, 1]]
        assert attempt(2, 101, again=first) == ["", [1, 1]]
        assert cluster.stats("ps0")["updates_made_before"] == 1
        # One that succeeded at once.
        assert attempt(2, second[0]) == ["", [2, 2]]
        assert attempt(2, 102, again=second) == ["", [2, 2]]
        assert cluster.stats("ps0")["updates_made_before"] == 2
        wait_idle(cluster)


def test_two_thousand_steps_leave_nothing_behind(nursery):
    samples = {name: [] for name in TASKS}
    environment = {name: {"TFSCHED_TRACE_CAPACITY": "500"} for name in TASKS}
    with Cluster(nursery=nursery, environment=environment) as cluster:
        open_training(cluster, client="a", width=32)
        for window in range(20):
            steps(cluster, 100, first=100 * window)
            cluster.call(HOME, "barrier.fetch", what="drain")
            wait_idle(cluster)
            for name in TASKS:
                samples[name].append(sample(cluster.pid(name)))
        assert cluster.stats(HOME)["background_done"] == 2000
        cluster.wait_idle("ps0")
        cluster.wait_idle(HOME)
    for name, taken in samples.items():
        early, late = taken[6:10], taken[-4:]
        for what, tolerance in (("resident_bytes", 6_000_000), ("threads", 3), ("files", 2)):
            first = statistics.median(one[what] for one in early)
            last = statistics.median(one[what] for one in late)
            print(f"{name} {what}: {first} -> {last}")
            assert last <= first + tolerance, f"{name}: {what} {[one[what] for one in taken]}"
