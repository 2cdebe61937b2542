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
    return {"name": name, "from": "ps", "to": to, "bytes": 1000, "rank": rank, "step_id": 1, **times}


@st.composite
def stories(draw):
    """Seconds between looks, and what happens meanwhile on each of two links."""
    event = st.sampled_from(["nothing", "nothing", "oldest", "other"])
    return draw(st.lists(st.tuples(st.integers(1, SECONDS * 2), event, event), min_size=1, max_size=30))


@given(stories())
def test_a_link_is_warned_of_once_when_nothing_was_released_for_so_long(story):
    """On each link two transfers are under way all the time: where one is released, the next one starts."""
    now_s, all_rows, links = 1000, [], {}
    stalls = Stalls(SECONDS, lambda: all_rows)
    for to in ("w0", "w1"):
        all_rows += [row("first", to, 1), row("second", to, 2)]
        links[to] = {"oldest": None, "released_s": 0, "said": False}
    for passed_s, *events in story:
        now_s += passed_s
        wanted = []
        for (to, link), event in zip(links.items(), events, strict=True):
            under_way = [one for one in all_rows if one["to"] == to and one["released_us"] < 0]
            if event != "nothing":
                under_way.pop(0 if event == "oldest" else 1)["released_us"] = now_s * 1_000_000
                all_rows.append(row("next", to, now_s * 1_000_000))
                under_way.append(all_rows[-1])
                link["released_s"] = now_s
            if link["oldest"] is not under_way[0]:
                link.update(oldest=under_way[0], since_s=now_s, said=False)
            if not link["said"] and now_s - max(link["since_s"], link["released_s"]) >= SECONDS:
                link["said"] = True
                wanted.append(to)
        rows = [one for one in all_rows if one["released_us"] < 0]
        said = stalls.look(IDLE, rows, now_s, now_s * 1e6)
        assert sorted(sentence.partition(" to ")[2].partition(":")[0] for sentence in said) == wanted


def test_a_link_that_was_idle_is_not_stalled_when_something_begins():
    rows = [row("a", "w0", 0, released_us=1)]
    stalls = Stalls(SECONDS, lambda: rows)
    for now_s in (0, 1000, 2000):
        assert stalls.look(IDLE, [], now_s, now_s * 1e6) == []
    rows.append(row("b", "w0", 3_000_000_000))
    assert stalls.look(IDLE, rows[1:], 3000, 3000e6) == []
    assert len(stalls.look(IDLE, rows[1:], 3000 + SECONDS, 3010e6)) == 1


def test_transfers_that_only_queue_are_counted():
    stalls, queued = Stalls(SECONDS, list), {**IDLE, "queue_depth": 3, "rate_bps": 1_000_000}
    assert stalls.look(queued, [], 0, 0) == []
    (said,) = stalls.look(queued, [], SECONDS, SECONDS * 1e6)
    assert "3 ordered transfer(s) of this process have been queued for 10 s" in said and "1,000,000 bit/s" in said
    assert stalls.look(queued, [], 2 * SECONDS, 0) == []
    assert stalls.look({**queued, "tasks": 1}, [], 3 * SECONDS, 0) == []  # one has left
    assert len(stalls.look({**queued, "tasks": 1}, [], 4 * SECONDS, 0)) == 1


def test_the_sentence_says_what_is_known():
    rows = [row("big", "w0", 5_000_000), *(row(f"n{number}", "w0", 6_000_000, rank=-1) for number in range(5))]
    now = {**IDLE, "queue_depth": 7, "on_wire_bytes": 1000, "policy": "p3", "credit_bytes": 5}
    stalls = Stalls(SECONDS, lambda: rows)
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
