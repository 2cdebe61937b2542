"""Traces of tf.functions on a real cluster: what they hold, plans made of them, and the profiles that show transfers."""

import itertools
import json

import pytest

from tfsched.bench.ports import free_port
from tfsched.ordering import Plan
from tfsched.tracing import StepTrace, load_trace
from tfsched.tracing.timeline import timeline

from .cluster import Cluster, TaskError

pytestmark = pytest.mark.timeout(180)

PS = "/job:ps/replica:0/task:0"
WORKERS = [f"/job:worker/replica:0/task:{index}" for index in range(2)]
LAYERS, SIZE_BYTES = 6, 64 * 64 * 4
CHIEF = "worker2"  # only lends its process
# A busy machine can be slower than the usual 5 ms; these tests are about what happens when nothing is given up.
PATIENT = {"ps0": {"TFSCHED_GRACE_US": "30e6"}}


@pytest.fixture(scope="module")
def cluster(nursery):
    with Cluster(ps=1, workers=3, nursery=nursery, environment=PATIENT) as cluster:
        cluster.call(CHIEF, "tracing.connect", port=free_port())
        yield cluster


def traced(cluster, **arguments):
    return StepTrace.from_json(cluster.call(CHIEF, "tracing.trace", **arguments))


@pytest.fixture(scope="module")
def training(cluster):
    before = cluster.call(CHIEF, "tracing.runs")
    trace = traced(cluster, function="train", steps=3)
    assert cluster.call(CHIEF, "tracing.runs") - before == 3 + 1  # each run is a real one, and one comes first
    return trace


def test_a_trace_knows_the_workers_ops_and_every_transfer(training):
    assert training.receivers() == [WORKERS[0], PS]
    pulls = [name for name, link in training.links.items() if link == f"{PS}>{WORKERS[0]}"]
    pushes = [name for name, link in training.links.items() if link == f"{WORKERS[0]}>{PS}"]
    assert len(pulls) == len(pushes) == LAYERS
    assert training.sizes == dict.fromkeys(pulls + pushes, SIZE_BYTES)
    assert len(training.steps) == 3
    products = [name for name, op, device, _ in training.nodes if op == "MatMul" and device.startswith(WORKERS[0])]
    updates = [name for name, op, device, _ in training.nodes if op == "AssignSubVariableOp" and device.startswith(PS)]
    assert len(products) == LAYERS + 2 * LAYERS - 1 and len(updates) == LAYERS
    for step in training.steps:
        assert {*products, *updates} <= set(step.ops)
        assert set(step.transfers) == set(training.links)
        assert all(step.start_us <= start <= start + took <= step.end_us for start, took in step.ops.values())
        assert all(step.start_us <= asked <= there <= step.end_us for asked, there in step.transfers.values())
        assert 0 < step.makespan_us <= step.end_us - step.start_us
        assert {row["step_id"] > 0 for row in step.sends} == {True}
        # No gradient leaves before the op that made it has run.
        for name in pushes:
            start, took = step.ops[name.partition(":")[0]]
            assert step.transfers[name][1] >= start + took - 1


def test_an_oracle_of_a_functions_ops(training):
    dag = training.dag()
    assert len(dag.recvs) == LAYERS
    product = next(op for op in dag.ops if op.name.endswith("layer5"))
    assert product.time_us == min(step.ops[product.name][1] for step in training.steps) > 0
    assert all(op.time_us > 0 for op in dag.recvs)


def test_a_scheduled_function_is_traced_without_its_proxies(cluster, training):
    options = {"policy": "bytescheduler", "partition_bytes": SIZE_BYTES // 4, "strict": True}
    scheduled = traced(cluster, function="train", options=options)
    assert scheduled.links == training.links and scheduled.sizes == training.sizes
    assert not any("tfsched" in name for name, _, _, _ in scheduled.nodes)
    for step in scheduled.steps:
        assert set(step.transfers) == set(scheduled.links)
        ranked = [row for row in step.sends if row["rank"] >= 0 and row["from"] == PS]
        assert sum(row["bytes"] for row in ranked) == LAYERS * SIZE_BYTES


def test_a_function_with_options_of_its_own_is_traced_with_them(cluster):
    trace = traced(cluster, function="decorated", steps=1)
    ranked = [(row["name"], row["rank"]) for row in trace.steps[0].sends if row["rank"] >= 0]
    assert ranked == [(f"layer{layer}/ReadVariableOp:0", layer) for layer in range(LAYERS)]
    assert not any(row["rank"] >= 0 for row in traced(cluster, steps=1).steps[0].sends)


def test_a_plan_is_obeyed_on_the_wire_by_all_workers(cluster, training, tmp_path):
    pulls = sorted(name for name, link in training.links.items() if link.startswith(PS))
    saved = str(tmp_path / "trace.json.gz")
    training.save(saved)
    # Backwards: no ordering would make it of itself.
    made = load_trace(saved).plan("tao").priorities
    assert set(made) == set(training.links)
    plan = Plan("backwards", {name: -value for name, value in made.items()}, {})
    path = str(tmp_path / "plan.json")
    plan.save(path)
    wanted = sorted(pulls, key=lambda name: -made[name])
    for index, worker in enumerate(WORKERS):
        again = traced(
            cluster, function="train", worker=index, options={"plan": path, "strict": True, "credit_bytes": 1}, steps=2
        )
        for step in again.steps:
            sent = [row for row in step.sends if row["from"] == PS and row["rank"] >= 0]
            assert {row["to"] for row in sent} == {worker}
            assert [row["name"] for row in sent] == [name.rpartition("@")[0] for name in wanted]


def test_a_function_called_on_a_workers_device_is_the_same_function(cluster, training):
    called = traced(cluster, function="train", direct=True, worker=1, steps=1)
    assert [name.partition("@")[0] for name in called.links] == [name.partition("@")[0] for name in training.links]
    assert called.receivers()[0] == WORKERS[1]


def test_a_timeline_of_a_function(training):
    drawn = json.loads(json.dumps(timeline(training), allow_nan=False))["traceEvents"]
    processes = {event["pid"]: event["args"]["name"] for event in drawn if event["name"] == "process_name"}
    tracks = {(processes[event["pid"]], event["args"]["name"]) for event in drawn if event["name"] == "thread_name"}
    assert {(WORKERS[0], "compute"), (PS, "compute"), (PS, "pull sending"), (WORKERS[0], "push sending")} <= tracks


def test_another_profiler_in_a_task_is_said_and_nothing_is_left_behind(cluster):
    cluster.call("ps0", "tracing.other_profiler", running=True)
    with pytest.raises(TaskError, match=r"another profiler runs there") as caught:
        traced(cluster)
    assert caught.value.kind == "TfschedError" and PS in caught.value.message
    cluster.call("ps0", "tracing.other_profiler", running=False)
    assert len(traced(cluster, steps=1).steps) == 1


def test_a_worker_that_is_not_there_is_said(cluster):
    with pytest.raises(TaskError, match=r"has no worker 7; its workers are 0, 1"):
        traced(cluster, worker=7)


def test_transfers_are_seen_in_a_profile(cluster, tmp_path):
    directory = str(tmp_path / "logs")
    cluster.call("ps0", "tracing.start_profile", directory=directory)
    cluster.call(CHIEF, "tracing.run", function="train", options={"credit_bytes": 1}, count=2)
    lines = cluster.call("ps0", "tracing.stop_profile", directory=directory)
    spans = {
        kind: [(name, events) for name, events in lines if name.startswith(kind)]
        for kind in ("tfsched queue", "tfsched wire")
    }
    pulls = {}
    for kind, found in spans.items():
        towards = [event for name, events in found if WORKERS[0] in name or WORKERS[1] in name for event in events]
        pulls[kind] = sorted(event[0] for event in towards if event[3]["rank"] >= 0)
        assert all(event[3]["bytes"] == SIZE_BYTES for event in towards if event[3]["rank"] >= 0)
        for _, events in found:  # a line is drawn as a thread: nothing overlaps
            for before, after in itertools.pairwise(events):
                assert before[1] + before[2] <= after[1] + 0.001
    assert len(pulls["tfsched wire"]) == 2 * LAYERS == len(pulls["tfsched queue"])
    assert pulls["tfsched wire"] == pulls["tfsched queue"]
    # They stand beside TensorFlow's own: the reads that they wait for.
    ran = [event for name, events in lines if not name.startswith("tfsched") for event in events]
    assert any(event[0].startswith("ReadVariableOp") or "ReadVariableOp" in event[0] for event in ran)
