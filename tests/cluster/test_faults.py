"""Tasks that die, hang or are cut off in mid-step: no hang, nothing left over, the errors that stock TensorFlow gives."""

import time

import pytest

from .cluster import STOCK, Cluster, TaskDied, TaskError, wait_until

# One transfer is 1 MB and the sender paces them, so that a step of 8 takes 0.8 s without any load.
PACED = {"ps0": {"TFSCHED_EMULATED_BPS": "80e6"}}
MODEL = {"layers": 8, "width": 512}
ORDERED = {"credit_bytes": 1}
POLICIES = pytest.mark.parametrize(
    "options", [ORDERED, {"policy": "bytescheduler", **ORDERED}], ids=["tictac", "bytescheduler"]
)

pytestmark = pytest.mark.timeout(300)


def kind_of(pending, limit_s=60):
    """The class of the error that the pending request ends with."""
    with pytest.raises(TaskError) as caught:
        pending.result(limit_s)
    return caught.value.kind


def in_mid_step(cluster, pending):
    """Waits until the step is certainly under way and cannot end by itself soon."""
    if cluster.protocol_of("ps0") == STOCK:
        # Nothing to look at from outside; the gate keeps the step from ending.
        time.sleep(1)
    else:
        cluster.wait_queued("ps0")
    assert not pending.done()


def begin_step(cluster, **arguments):
    """Starts a step that can only end early; returns it when it is in the middle."""
    pending = cluster.submit("worker0", "common.run", fetch="gated", **arguments)
    in_mid_step(cluster, pending)
    return pending


def faults(cluster, options):
    """One fault after the other in a fresh cluster; returns the classes of the errors by fault."""
    seen = {}
    idle = (lambda: None) if options is None else (lambda: cluster.wait_idle("ps0"))

    def open_session(**arguments):
        cluster.call("worker0", "common.open_session", options=options, **MODEL, **arguments)

    def next_step():
        (loss,) = cluster.call("worker0", "common.run")
        assert 0 < float.fromhex(loss) < 10
        idle()

    def dropped():
        return 0 if options is None else cluster.stats("ps0")["dropped"]

    open_session()
    next_step()
    step = begin_step(cluster)
    cluster.call("worker0", "common.close_session")
    seen["close"] = kind_of(step)
    idle()
    assert options is None or dropped() > 0  # what was queued went away with its step

    open_session(init=False)
    next_step()
    step = begin_step(cluster, timeout_ms=1500)
    seen["run timeout"] = kind_of(step)
    idle()
    next_step()
    cluster.call("worker0", "common.close_session")

    open_session(init=False, fields={"operation_timeout_in_ms": 2500})
    step = begin_step(cluster)
    seen["operation timeout"] = kind_of(step)
    idle()
    next_step()
    cluster.call("worker0", "common.close_session")

    open_session(init=False)
    step = begin_step(cluster)
    cluster.kill("ps0")
    seen["ps killed"] = kind_of(step)
    cluster.restart("ps0")
    seen["session of before"] = kind_of(cluster.submit("worker0", "common.run"))
    open_session(name="after")
    (loss,) = cluster.call("worker0", "common.run", name="after")
    assert 0 < float.fromhex(loss) < 10
    idle()
    print(seen)
    return seen


@pytest.fixture(scope="module")
def stock_errors(nursery):
    with Cluster(nursery=nursery, protocol=STOCK) as cluster:
        return faults(cluster, None)


@POLICIES
def test_errors_are_those_of_stock_tensorflow(nursery, stock_errors, options):
    with Cluster(nursery=nursery, environment=PACED) as cluster:
        ordered = faults(cluster, options)
    stock = dict(stock_errors)
    for seen in (stock, ordered):
        # A race within TensorFlow: whether the channel to the new server stands again. Both make a MonitoredSession recover.
        assert seen.pop("session of before") in ("AbortedError", "UnavailableError")
    assert ordered == stock
    assert stock["close"] == "CancelledError"


@POLICIES
def test_worker_killed_while_transfers_to_it_are_queued(nursery, options):
    with Cluster(nursery=nursery, workers=2, environment=PACED) as cluster:
        for index in range(2):
            name, filters = f"worker{index}", ["/job:ps", f"/job:worker/task:{index}"]
            cluster.call(name, "common.open_session", options=options, filters=filters, init=index == 0, **MODEL)
            cluster.call(name, "common.run")
        sent = cluster.wait_idle("ps0")["tasks"]
        step = cluster.submit("worker1", "common.run")
        in_mid_step(cluster, step)

        # Nobody announces the step's end when its master is dead. What it has not asked for by then would be waited for
        # until many such steps have come together (max_idle_groups), so all of it is to have come.
        def asked():
            stats = cluster.stats("ps0")
            return stats["tasks"] + stats["queue_depth"] == sent + MODEL["layers"]

        wait_until(asked, 10, "all requests of the step")
        cluster.kill("worker1")
        with pytest.raises(TaskDied):
            step.result(10)
        cluster.call("worker0", "common.run", count=2)
        cluster.wait_idle("ps0")
        before = cluster.call("worker0", "common.run", fetch="steps")

        cluster.restart("worker1")
        cluster.call(
            "worker1", "common.open_session", options=options, filters=["/job:ps", "/job:worker/task:1"], init=False, **MODEL
        )
        both = [cluster.submit(f"worker{index}", "common.run", count=2) for index in range(2)]
        for pending in both:
            assert len(pending.result()) == 2
        after = cluster.call("worker0", "common.run", fetch="steps")
        assert float.fromhex(after[0]) == float.fromhex(before[0]) + 4
        assert cluster.wait_idle("ps0")["step_asides"] >= 0
