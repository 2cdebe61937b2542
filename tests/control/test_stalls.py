"""Warnings of stalls: which transfers they name, that each comes once, and none while something moves."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.cluster import Cluster, wait_until
from tfsched.control.stalls import Stalls

SECONDS = 10
IDLE = {"queue_depth": 0, "on_wire_bytes": 0, "tasks": 0, "policy": "graph", "credit_bytes": -1, "rate_bps": 0}


def row(name, to, started_us, released_us=-1, rank=0):
    times = {"requested_us": started_us, "ready_us": started_us, "started_us": started_us, "released_us": released_us}
    return {"name": name, "from": "ps", "to": to, "bytes": 1000, "rank": rank, **times}


@given(
    st.lists(st.tuples(st.integers(1, SECONDS * 2), st.booleans()), min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(1, SECONDS * 2), st.booleans()), min_size=1, max_size=30),
)
def test_a_link_is_warned_of_once_when_nothing_was_released_for_so_long(first, second):
    """Each link's looks: (seconds since the last one, whether something was released in between)."""
    stalls, now_s = Stalls(SECONDS), 0
    state = {to: {"released": -1, "since": None, "said": False} for to in ("w0", "w1")}
    for moves in zip(first, second, strict=False):
        now_s += moves[0][0]
        rows, wanted = [], []
        for (to, link), (_, released) in zip(state.items(), moves, strict=True):
            if released or link["since"] is None:
                link.update(released=now_s if released else -1, since=now_s, said=False)
            if link["released"] >= 0:
                rows.append(row("before", to, 0, released_us=link["released"]))
            rows.append(row("w", to, 1))
            if now_s - link["since"] >= SECONDS and not link["said"]:
                link["said"] = True
                wanted.append(to)
        said = stalls.look(IDLE, rows, now_s, now_s * 1e6)
        assert [sentence.partition(" to ")[2].partition(":")[0] for sentence in said] == wanted
        assert stalls.under_way


def test_a_link_that_was_idle_is_not_stalled_when_something_begins():
    stalls = Stalls(SECONDS)
    done = row("a", "w0", 0, released_us=1)
    for now_s in (0, 1000, 2000):
        assert stalls.look(IDLE, [done], now_s, now_s * 1e6) == [] and not stalls.under_way
    assert stalls.look(IDLE, [done, row("b", "w0", 2)], 3000, 3000e6) == []
    assert len(stalls.look(IDLE, [done, row("b", "w0", 2)], 3000 + SECONDS, 3010e6)) == 1


def test_what_was_dropped_is_not_under_way():
    stalls = Stalls(SECONDS)
    dropped = {**row("a", "w0", -1), "dropped": 1}
    assert [stalls.look(IDLE, [dropped], now_s, now_s * 1e6) for now_s in (0, 100)] == [[], []]


def test_transfers_that_only_queue_are_counted():
    stalls, queued = Stalls(SECONDS), {**IDLE, "queue_depth": 3, "rate_bps": 1_000_000}
    assert stalls.look(queued, [], 0, 0) == []
    (said,) = stalls.look(queued, [], SECONDS, SECONDS * 1e6)
    assert "3 ordered transfer(s) of this process have been queued for 10 s" in said and "1,000,000 bit/s" in said
    assert stalls.look(queued, [], 2 * SECONDS, 0) == []
    assert stalls.look({**queued, "tasks": 1}, [], 3 * SECONDS, 0) == []  # one has left
    assert len(stalls.look({**queued, "tasks": 1}, [], 4 * SECONDS, 0)) == 1


def test_the_sentence_says_what_is_known():
    rows = [row("big", "w0", 5_000_000), *(row(f"n{number}", "w0", 6_000_000, rank=-1) for number in range(5))]
    now = {**IDLE, "queue_depth": 7, "on_wire_bytes": 1000, "policy": "p3", "credit_bytes": 5}
    stalls = Stalls(SECONDS)
    assert stalls.look(now, rows, 0, 10e6) == []
    (said,) = stalls.look(now, rows, SECONDS, 20e6)
    for words in (
        "a step has waited 10 s for big (1,000 bytes, rank 0) from ps to w0: asked for 15 s ago",
        "Behind it on the wire: n0 (1,000 bytes), n1 (1,000 bytes), n2 (1,000 bytes) and 2 more.",
        "7 ordered transfer(s) are queued and 1,000 bytes on the wire; policy p3 and a credit of 5 bytes in force",
    ):
        assert words in said, said


@pytest.mark.timeout(240)
def test_a_worker_that_stands_still_is_named_by_the_task_that_sends_to_it(nursery):
    environment = {name: {"TFSCHED_STALL_SECONDS": "2"} for name in ("ps0", "worker0")}
    with Cluster(nursery=nursery, environment=environment) as cluster:
        # Without being asked nothing is served: the only port is the cluster's.
        for name in cluster.names:
            own = int(cluster.target(name).rpartition(":")[2])
            assert cluster.call(name, "tests.control.scenarios.open_doors") == [[own], []]

        # More than sockets hold: 16 MB each.
        cluster.call("worker0", "common.open_session", options={}, layers=6, width=2048)
        cluster.call("worker0", "common.run")
        assert "a step has waited" not in cluster.log("ps0")

        def stopped_in_mid_step():
            step = cluster.submit("worker0", "common.run", fetch="loss")
            wait_until(lambda: step.done() or cluster.stats("ps0")["on_wire_bytes"] > 0, 30, "bytes on the wire")
            cluster.stop("worker0")
            time.sleep(0.3)  # until sockets are full
            if not step.done() and cluster.stats("ps0")["on_wire_bytes"] > 0:
                return step
            cluster.resume("worker0")
            step.result()
            return None

        step = wait_until(stopped_in_mid_step, 60, "a worker that is stopped in the middle of a step")
        (said,) = wait_until(lambda: warnings(cluster), 30, "a warning")
        assert "from /job:ps/replica:0/task:0 to /job:worker/replica:0/task:0: asked for " in said
        assert "ReadVariableOp:0 (16,777,216 bytes, rank " in said or "/read:0 (16,777,216 bytes, rank " in said, said
        cluster.resume("worker0")
        step.result()
        cluster.call("worker0", "common.run", count=3)
        assert warnings(cluster) == [said] and "a step has waited" not in cluster.log("worker0")


def warnings(cluster):
    return [line for line in cluster.log("ps0").splitlines() if "a step has waited" in line]
