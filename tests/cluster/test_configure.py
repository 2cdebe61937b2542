"""Changing running schedulers: it reaches the cluster, its effect is on the wire, and no value changes."""

import itertools

import pytest

from .cluster import STOCK, Cluster, TaskError, but_steps, trained_while
from .test_order_on_wire import PATIENT, PS, by_step, most_at_once

pytestmark = pytest.mark.timeout(240)

PS0, WORKER0, WORKER1 = "/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"
OVERRIDES = ("policy", "credit_bytes", "rate_bps")


def overrides(stats):
    return [stats[name] for name in OVERRIDES]


def test_changes_while_steps_run_change_no_value(nursery):
    with Cluster(nursery=nursery) as cluster:
        cluster.call("worker0", "common.open_session", options={})
        before = cluster.wait_idle("ps0")
        changes = itertools.cycle(
            [
                {"policy": "bytescheduler", "credit_bytes": 600_000},
                {"policy": "p3"},
                {"credit_bytes": 1, "policy": "tictac", "rate_bps": 2e9},
                {"policy": "fifo"},
                {"policy": "bytescheduler", "credit_bytes": 0, "rate_bps": 0},
                {"policy": "graph", "credit_bytes": -1},
            ]
        )

        def change():
            reached, skipped = cluster.call("worker0", "configure.change", session="main", **next(changes))
            assert (reached, skipped) == ([PS0, WORKER0], {})

        gave = trained_while(cluster, change, times=6, steps=150)  # each change at least once while steps ran
        stats = cluster.wait_idle("ps0")
        assert stats["dropped"] == 0
        assert stats["tasks"] - before["tasks"] == len(gave) * 8
        cluster.call("worker0", "common.open_session", options={})
        assert cluster.call("worker0", "common.run", count=len(gave)) == gave
        assert len(set(gave[:150])) == 150  # it really trains


def test_each_change_shows_on_the_wire_and_in_the_stats(nursery):
    # 1 MB each, 10 ms each.
    environment = {"ps0": {**PATIENT["ps0"], "TFSCHED_EMULATED_BPS": "800e6"}}
    with Cluster(nursery=nursery, environment=environment) as cluster:
        cluster.call("worker0", "common.open_session", options={"credit_bytes": 1}, layers=10, width=512)
        seen = set()

        def steps_after(**values):
            """The ordered transfers of the steps that ran after the change."""
            if values:
                cluster.call("worker0", "configure.change", session="main", **values)
            cluster.call("worker0", "common.run", fetch="loss", count=6)
            stats = cluster.wait_idle("ps0")
            assert but_steps(stats) == but_steps(cluster.call("worker0", "order.remote_stats", name="main", of=PS))
            steps = by_step(cluster.call("ps0", "common.transfers"))
            new = [steps[step] for step in steps if step not in seen]
            seen.update(steps)
            assert [len(step) for step in new] == [10] * 6
            return new, overrides(stats)

        def ordered(steps):
            return all([transfer["rank"] for transfer in step] == list(range(10)) for step in steps)

        steps_after()  # the initialiser's transfers, too
        steps, shown = steps_after()
        assert shown == ["graph", -1, 0]
        assert ordered(steps) and all(most_at_once(step) == 0 for step in steps)

        steps, shown = steps_after(credit_bytes=3_500_000)
        assert shown == ["graph", 3_500_000, 0]
        assert ordered(steps) and max(most_at_once(step) for step in steps) > 3_000_000  # tictac: one more than fits

        steps, shown = steps_after(policy="bytescheduler")
        assert shown == ["bytescheduler", 3_500_000, 0]
        assert max(most_at_once(step) for step in steps) == 2 * 512 * 512 * 4  # and a third that starts: 3.1 MB

        steps, shown = steps_after(policy="p3")
        assert shown == ["p3", 3_500_000, 0]
        assert all(most_at_once(step) == 0 for step in steps)

        steps, shown = steps_after(policy="fifo")
        assert shown == ["fifo", 3_500_000, 0]
        assert not ordered(steps) and max(most_at_once(step) for step in steps) > 3_500_000

        steps, shown = steps_after(policy="graph", credit_bytes=-1)
        assert shown == ["graph", -1, 0]
        assert ordered(steps) and all(most_at_once(step) == 0 for step in steps)


def test_rate_caps_what_a_receiver_is_sent(nursery):
    rate_bps = 160_000_000
    with Cluster(nursery=nursery, environment=PATIENT) as cluster:
        cluster.call("worker0", "common.open_session", options={"policy": "bytescheduler", "credit_bytes": 0})

        def fastest():
            """Per step, the bits per second at which transfers left, but for the burst that an idle link may send."""
            known = {transfer["step_id"] for transfer in cluster.call("ps0", "common.transfers")}
            cluster.call("worker0", "common.run", fetch="loss", count=5)
            cluster.wait_idle("ps0")
            steps = by_step(cluster.call("ps0", "common.transfers"))
            rates = []
            for number in steps.keys() - known:
                step = steps[number]
                bits = sum(transfer["bytes"] * 8 for transfer in step[:-1])
                rates.append(bits / (step[-1]["started_us"] - step[0]["started_us"] + 2000) * 1e6)
            assert len(rates) == 5
            return max(rates)

        cluster.call("worker0", "configure.change", session="main", rate_bps=rate_bps)
        assert cluster.stats("ps0")["rate_bps"] == rate_bps
        assert fastest() <= rate_bps * 1.001
        cluster.call("worker0", "configure.change", session="main", rate_bps=0)
        assert fastest() > rate_bps * 1.5


def test_tasks_without_tfsched_are_skipped_and_named(nursery):
    with Cluster(nursery=nursery, workers=2, protocols={"worker1": STOCK}) as cluster:
        reached, skipped = cluster.call("worker0", "configure.change", target=cluster.target("worker0"), credit_bytes=5)
        assert reached == [PS0, WORKER0]
        assert list(skipped) == [WORKER1] and "does not import tfsched" in skipped[WORKER1]
        assert cluster.stats("ps0")["credit_bytes"] == cluster.stats("worker0")["credit_bytes"] == 5

        # One task alone, though another is gone: its session must not wait for it.
        cluster.kill("worker1")
        arguments = {"target": cluster.target("worker0"), "on": PS}
        assert cluster.call("worker0", "configure.change", credit_bytes=6, **arguments) == [[PS], {}]
        assert [cluster.stats(name)["credit_bytes"] for name in ("ps0", "worker0")] == [6, 5]

        assert cluster.call("ps0", "configure.change", policy="p3") == [["this process"], {}]
        assert overrides(cluster.stats("ps0")) == ["p3", 6, 0]
        with pytest.raises(TaskError, match=r"No task was configured .*/job:ps/task:7.*name a running cluster") as error:
            cluster.call("worker0", "configure.change", target=cluster.target("worker0"), on="/job:ps/task:7", policy="p3")
        assert error.value.kind == "TfschedError"


def test_a_session_that_sees_part_of_the_cluster_changes_that_part(nursery):
    with Cluster(nursery=nursery, workers=2) as cluster:
        filters = ["/job:ps", "/job:worker/task:0"]
        cluster.call("worker0", "common.open_session", options={}, filters=filters)
        cluster.kill("worker1")
        assert cluster.call("worker0", "configure.change", session="main", policy="p3") == [[PS0, WORKER0], {}]


def test_tasks_that_are_dead_cost_one_limit_together_and_are_named(nursery):
    limit_s = 2.0
    with Cluster(nursery=nursery, ps=2, workers=2) as cluster:
        cluster.call("worker0", "common.open_session", options={})
        for name in ("ps1", "worker1"):
            cluster.kill(name)

        def change(**arguments):
            values = {"policy": "p3", "timeout_s": limit_s, **arguments}
            result, took_s = cluster.call("worker0", "configure.timed", **values)
            assert took_s < limit_s + 1, took_s
            return result

        dead = "it did not answer within 2 s"
        assert change(session="main") == [[PS0, WORKER0], {"/job:ps/replica:0/task:1": dead, WORKER1: dead}]
        assert cluster.stats("ps0")["policy"] == cluster.stats("worker0")["policy"] == "p3"
        target = cluster.target("worker0")
        assert change(target=target, on=WORKER1) == (
            f"No task was configured ({WORKER1}: {dead}); name a running cluster whose tasks import tfsched."
        )
        assert change(target=target) == (
            f"The devices of {target} cannot be listed within 2 s, for this task or another one of its cluster does not "
            "answer; start the cluster's tasks, or name one that runs by task=."
        )
