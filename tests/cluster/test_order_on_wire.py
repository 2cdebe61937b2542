"""What leaves a parameter server, and when: rank order, the credit's bound, and nothing delayed that is not ordered."""

import itertools

import pytest

from .cluster import Cluster, but_steps, wait_until

pytestmark = pytest.mark.timeout(180)

PS = "/job:ps/task:0"
# A busy machine can be slower than the usual 5 ms; these tests are about what happens when nothing is given up.
PATIENT = {"ps0": {"TFSCHED_GRACE_US": "30e6"}}


def by_step(transfers):
    """step id -> the ordered transfers of that step, in the order of their starts."""
    steps = {}
    for transfer in transfers:  # in the order of their starts
        if transfer["rank"] >= 0:
            steps.setdefault(transfer["step_id"], []).append(transfer)
    return steps


def most_at_once(transfers):
    """Per start, the bytes that were on the wire just before it; returns the largest."""
    return max(
        sum(other["bytes"] for other in transfers[:number] if other["released_us"] > one["started_us"])
        for number, one in enumerate(transfers)
    )


def run_steps(cluster, options, count, **size):
    cluster.call("worker0", "common.open_session", options=options, **size)
    cluster.call("worker0", "common.run", count=count)
    cluster.wait_idle("ps0")
    return cluster.call("worker0", "order.remote_transfers", name="main", of=PS)


def test_rank_order_in_every_step_whatever_the_order_of_requests(nursery):
    layers, count = 12, 30
    with Cluster(nursery=nursery, environment=PATIENT) as cluster:
        transfers = run_steps(cluster, {"credit_bytes": 300_000}, count, layers=layers)
        assert cluster.stats("ps0")["step_asides"] == 0
        local = but_steps(cluster.stats("ps0"))  # to ask from afar is a transfer itself
        assert local == but_steps(cluster.call("worker0", "order.remote_stats", name="main", of=PS))
    steps = by_step(transfers)
    assert len(steps) == count
    for step in steps.values():
        assert [transfer["rank"] for transfer in step] == list(range(layers))
        starts = [transfer["started_us"] for transfer in step]
        assert starts == sorted(starts)
        assert {(transfer["from"], transfer["to"]) for transfer in step} == {
            ("/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0")
        }
        for transfer in step:
            assert transfer["requested_us"] <= transfer["ready_us"] <= transfer["started_us"] <= transfer["released_us"]
    # Otherwise the order would prove nothing.
    assert any(
        [transfer["rank"] for transfer in sorted(step, key=lambda one: one["ready_us"])] != list(range(layers))
        for step in steps.values()
    )
    # tio sends the layers in the order in which the forward pass needs them.
    names = [transfer["name"] for transfer in next(iter(steps.values()))]
    assert names == ["matmul/ReadVariableOp:0", *[f"matmul_{layer}/ReadVariableOp:0" for layer in range(1, layers)]]


def test_fifo_policy_sends_as_tensors_become_ready(nursery):
    with Cluster(nursery=nursery, environment=PATIENT) as cluster:
        transfers = run_steps(cluster, {"policy": "fifo", "credit_bytes": 1}, 10)
        assert cluster.stats("ps0")["reorderings"] == 0
    steps = by_step(transfers)
    assert len(steps) == 10
    # The same graph in which tictac sends by rank.
    assert any([transfer["rank"] for transfer in step] != list(range(8)) for step in steps.values())


def test_steps_share_the_link_under_p3(nursery):
    count = 10
    # 13 ms a transfer, so each session asks while the link is busy with the other one's; stop-and-wait on any link.
    slow = {**PATIENT["ps0"], "TFSCHED_QUICK_US": "0", "TFSCHED_EMULATED_BPS": "160e6"}
    with Cluster(nursery=nursery, environment={"ps0": slow}) as cluster:
        losses = cluster.call("worker0", "faults.twins", options={"policy": "p3", "credit_bytes": 0}, count=count)
        stats = cluster.wait_idle("ps0")
        transfers = [transfer for transfer in cluster.call("ps0", "common.transfers") if transfer["rank"] >= 0]
    assert {len(one) for one in losses} == {count} and len({*losses[0], *losses[1]}) == 1
    assert stats["late"] == stats["step_asides"] == 0
    # Two sessions' steps at once, and never two transfers: neither of one step nor of both.
    assert len(by_step(transfers)) >= 2 * count
    assert most_at_once(transfers) == 0
    # They really were at once: a step's transfers have another's among them.
    order = [transfer["step_id"] for transfer in transfers]
    assert any(len(set(order[order.index(step) : len(order) - order[::-1].index(step)])) > 1 for step in set(order))


def test_p3_stops_behind_each_transfer_only_where_the_link_takes_time(nursery):
    size = {"layers": 12, "width": 256}  # 256 KiB each
    # An hour: whatever the machine does meanwhile, no transfer takes so long.
    quick = {"ps0": {**PATIENT["ps0"], "TFSCHED_QUICK_US": "3600e6"}}
    with Cluster(nursery=nursery, environment=quick) as cluster:
        free = run_steps(cluster, {"policy": "p3"}, 6, **size)
    assert 0 < most_at_once(free) <= 3 * 4 * 256 * 256, "with the one that starts they are four"
    # 21 ms each.
    slow = {"ps0": {**PATIENT["ps0"], "TFSCHED_EMULATED_BPS": "100e6"}}
    with Cluster(nursery=nursery, environment=slow) as cluster:
        limited = run_steps(cluster, {"policy": "p3"}, 3, **size)
    assert most_at_once(limited) == 0


@pytest.mark.parametrize("credit_bytes", [1, 1_500_000])
def test_credit_bounds_what_is_on_an_emulated_wire(nursery, credit_bytes):
    # 1 MB each, 20 ms each.
    environment = {"ps0": {**PATIENT["ps0"], "TFSCHED_EMULATED_BPS": "400e6"}}
    with Cluster(nursery=nursery, environment=environment) as cluster:
        transfers = run_steps(cluster, {"credit_bytes": credit_bytes}, 4, layers=10, width=512)
        assert cluster.stats("ps0")["emulated"] == 1
    for step in by_step(transfers).values():
        assert len(step) == 10
        assert most_at_once(step) < credit_bytes
        # And the credit is used: with room for a second transfer there is a second one.
        assert (most_at_once(step) > 0) == (credit_bytes > 1)


def test_credit_bounds_what_grpc_holds(nursery):
    with Cluster(nursery=nursery, environment=PATIENT) as cluster:
        bounded = run_steps(cluster, {"credit_bytes": 1}, 3, layers=6, width=1024)
        free = run_steps(cluster, {"credit_bytes": 0}, 3, layers=6, width=1024)[len(bounded) :]
    assert all(most_at_once(step) == 0 for step in by_step(bounded).values())
    assert any(most_at_once(step) > 0 for step in by_step(free).values())


def test_untagged_transfers_pass_a_queue_that_waits(nursery):
    with Cluster(nursery=nursery, environment={"ps0": {"TFSCHED_GRACE_US": "600e6"}}) as cluster:
        cluster.call("worker0", "order.open_held", options={})
        before = cluster.wait_idle("ps0")
        step = cluster.submit("worker0", "order.fetch", name="held", what="sum")
        # All variables wait for the held value, which has rank 0 ...
        wait_until(lambda: cluster.stats("ps0")["queue_depth"] == 8, 30, "eight transfers in the queue")
        # ... and the string passes them.
        text = cluster.call("worker0", "order.fetch", name="beside", what="early")
        assert float(text.strip("b'")) != 0
        stats = cluster.stats("ps0")
        assert stats["queue_depth"] == 8
        assert stats["tasks"] == before["tasks"]
        assert not step.done()
        cluster.call("worker0", "order.fetch", name="beside", what="release")
        step.result()
        cluster.wait_idle("ps0")
        (ranks,) = [
            [transfer["rank"] for transfer in one]
            for one in by_step(cluster.call("ps0", "common.transfers")).values()
            if len(one) == 9
        ]
        assert ranks == list(range(9))


def test_a_missing_rank_costs_one_grace_period_and_no_order(nursery):
    # The held value never comes, so its rank is given up; the others still leave in order.
    with Cluster(nursery=nursery, environment={"ps0": {"TFSCHED_GRACE_US": "200e3"}}) as cluster:
        cluster.call("worker0", "order.open_held", options={})
        cluster.wait_idle("ps0")
        step = cluster.submit("worker0", "order.fetch", name="held", what="sum")
        wait_until(lambda: cluster.stats("ps0")["step_asides"] == 1, 30, "a rank given up")
        wait_until(lambda: cluster.stats("ps0")["queue_depth"] == 0, 30, "the others sent")
        cluster.call("worker0", "order.fetch", name="beside", what="release")
        step.result()
        stats = cluster.wait_idle("ps0")
        assert stats["step_asides"] == 1
        assert stats["late"] == 1
        (step,) = [one for one in by_step(cluster.call("ps0", "common.transfers")).values() if len(one) == 9]
        assert [transfer["rank"] for transfer in step] == [*range(1, 9), 0]
        waits = [later["started_us"] - earlier["started_us"] for earlier, later in itertools.pairwise(step[:-1])]
        assert max(waits) < 200_000


@pytest.mark.parametrize(("limit", "mark"), [(None, None), (100000, "46"), (0, "64"), (0, "-1"), (0, "4.5")])
def test_connections_keep_little_that_is_not_sent(nursery, limit, mark):
    """What the kernel has taken is out of the order's reach. The packets' mark is set in the same place."""
    environment = {} if limit is None else {"TFSCHED_SEND_BACKLOG_BYTES": str(limit), "TFSCHED_DSCP": mark}
    with Cluster(nursery=nursery, environment={"ps0": environment}) as cluster:
        run_steps(cluster, {}, 1)
        backlogs = cluster.call("ps0", "common.send_backlogs")
        assert backlogs
        marked = 46 if mark == "46" else 0
        assert {tuple(one) for one in backlogs} == {(1 << 18 if limit is None else limit, marked)}
        assert (f"TFSCHED_DSCP={mark} is not" in cluster.log("ps0")) is (mark not in (None, "46"))
