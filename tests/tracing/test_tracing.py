"""Traces of a real cluster: what they hold, their file, plans and timelines made of them."""

from __future__ import annotations

import gzip
import itertools
import json
import textwrap

import pytest
import tensorflow as tf
from graphs import PS0, WORKER, target

import tfsched
from tfsched.ordering import Plan
from tfsched.tracing import StepTrace, TracedStep, TraceError, load_trace, plan_from_trace, trace_steps
from tfsched.tracing.directions import direction, in_background
from tfsched.tracing.script import trace_script
from tfsched.tracing.timeline import timeline

tf1 = tf.compat.v1
RECEIVER = "/job:worker/replica:0/task:0"
LAYERS = 6


def model():
    """A chain of layers: variables on a parameter server, multiplications on the worker."""
    with tf.device(PS0):
        weights = [tf1.get_variable(f"w{i}", [64, 64], use_resource=True) for i in range(LAYERS)]
    with tf.device(WORKER):
        h = tf.ones([8, 64])
        for i, weight in enumerate(weights):
            h = tf.matmul(h, weight.read_value(), name=f"layer{i}")
        return tf.reduce_sum(h, name="loss")


@pytest.fixture(scope="module")
def trace():
    with tf.Graph().as_default():
        loss = model()
        config = tfsched.session_config(tfsched.Options(strict=True), tf1.ConfigProto(operation_timeout_in_ms=60_000))
        with tf1.Session(target(), config=config) as session:
            session.run(tf1.global_variables_initializer())
            session.run(loss)
            return trace_steps(session, loss, steps=3)


def test_a_trace_knows_ops_transfers_and_what_the_sender_saw(trace):
    assert len(trace.steps) == 3
    assert trace.receivers()[0] == RECEIVER
    assert len(trace.links) == LAYERS
    assert set(trace.sizes.values()) == {64 * 64 * 4}
    for step in trace.steps:
        assert set(step.transfers) == set(trace.links)
        assert 0 < step.makespan_us <= step.end_us - step.start_us
        assert sorted(row["rank"] for row in step.sends if row["rank"] >= 0) == list(range(LAYERS))
        for row in step.sends:
            assert row["requested_us"] <= row["ready_us"] <= row["started_us"] <= row["released_us"]


def test_proxies_do_not_show(trace):
    assert not any("tfsched" in name for name, _, _, _ in trace.nodes)
    assert not any("tfsched" in name for name in trace.links)


def test_the_dag_is_the_workers_partition(trace):
    dag = trace.dag(RECEIVER)
    assert len(dag.recvs) == LAYERS
    assert all(op.size_bytes == 64 * 64 * 4 for op in dag.recvs)
    layer = dag.ops[dag.index["layer3"]]
    assert "layer2" in layer.inputs
    assert sum(name in {op.name for op in dag.recvs} for name in layer.inputs) == 1
    oracle = trace.oracle()
    assert layer.time_us == min(step.ops["layer3"][1] for step in trace.steps) == oracle.time_us("layer3", -1)


@pytest.mark.parametrize("algorithm", ["tao", "layer"])
def test_a_plan_of_a_chain_is_the_chain(trace, algorithm):
    plan = plan_from_trace(trace, algorithm)
    order = sorted(plan.priorities, key=lambda name: plan.priorities[name])
    first_use = {dag_input: i for i in range(LAYERS) for dag_input in trace.dag().ops[trace.dag().index[f"layer{i}"]].inputs}
    assert [first_use[name] for name in order] == list(range(LAYERS))


def test_a_plan_from_a_trace_is_what_the_pass_enforces(trace, tmp_path):
    backwards = Plan("backwards", {name: -float(i) for i, name in enumerate(sorted(trace.links))}, {})
    path = str(tmp_path / "plan.json")
    backwards.save(path)
    with tf.Graph().as_default():
        loss = model()
        options = tfsched.Options(plan=path, strict=True, credit_bytes=1)
        config = tfsched.session_config(options, tf1.ConfigProto(operation_timeout_in_ms=60_000))
        with tf1.Session(target(), config=config) as session:
            session.run(tf1.global_variables_initializer())
            session.run(loss)
            again = trace_steps(session, loss, steps=1)
    sent = [row for row in again.steps[0].sends if row["rank"] >= 0]
    sent.sort(key=lambda row: row["rank"])
    assert [row["name"] + "@" + row["to"] for row in sent] == sorted(trace.links, reverse=True)


def test_transfers_in_chunks_are_one_transfer_and_a_plan_says_their_sizes(trace):
    names = sorted(trace.links)
    plan = Plan("sizes", dict.fromkeys(names, 1.0), partition_bytes={names[0]: 4096, names[1]: 0})
    with tf.Graph().as_default():
        loss = model()
        options = tfsched.Options(plan=json.dumps(plan.to_json()), partition_bytes=8192, strict=True, credit_bytes=1)
        config = tfsched.session_config(options, tf1.ConfigProto(operation_timeout_in_ms=60_000))
        with tf1.Session(target(), config=config) as session:
            session.run(tf1.global_variables_initializer())
            session.run(loss)
            cut = trace_steps(session, loss, steps=2)
    assert cut.links == trace.links
    assert cut.sizes == trace.sizes
    assert not any("tfsched" in name for name, _, _, _ in cut.nodes)
    assert {name: inputs for name, _, _, inputs in cut.nodes} == {name: inputs for name, _, _, inputs in trace.nodes}
    for step in cut.steps:
        rows = sorted((row["rank"], row["name"], row["bytes"]) for row in step.sends if row["rank"] >= 0)
        assert [rank for rank, _, _ in rows] == list(range(4 + 1 + 2 * (LAYERS - 2)))
        chunks = [
            (name.partition("#")[2], size) for _, name, size in rows if name.startswith(names[0].partition("@")[0] + "#")
        ]
        assert chunks == [(f"{number}/4", 4096) for number in range(4)]
        for name, (requested, arrived) in step.transfers.items():
            sends = [row for row in step.sends if row["name"].partition("#")[0] + "@" + row["to"] == name]
            assert requested <= min(row["released_us"] for row in sends)
            assert arrived >= max(row["started_us"] for row in sends)


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_a_saved_trace_is_the_same_trace(trace, tmp_path, name):
    path = str(tmp_path / name)
    trace.save(path)
    assert load_trace(path) == trace


def test_service_times_of_a_link_add_up_to_its_busy_time():
    step = TracedStep(0, 100, {}, {"a": (0, 30), "b": (5, 50), "c": (80, 90)})
    assert step.service_times_us({"a": "x", "b": "x", "c": "x"}) == {"a": 30.0, "b": 20.0, "c": 10.0}
    assert step.service_times_us({"a": "x", "b": "y", "c": "x"}) == {"a": 30.0, "b": 45.0, "c": 10.0}


def test_transfers_of_a_link_take_time_by_their_bytes():
    slow = TracedStep(0, 200, {}, {"a": (0, 90), "b": (0, 180), "c": (0, 7)})
    # a and b are seen to arrive together: b's own service time is nothing.
    fast = TracedStep(0, 100, {}, {"a": (0, 60), "b": (0, 60), "c": (0, 5)})
    trace = StepTrace([], {"a": 100, "b": 200}, {"a": "x", "b": "x", "c": "y"}, [slow, fast])
    oracle = trace.oracle()
    assert [oracle.time_us(name, -1) for name in "abc"] == [20.0, 40.0, 5.0]


def test_a_timeline_is_valid_and_no_track_overlaps_itself(trace):
    drawn = json.loads(json.dumps(timeline(trace), allow_nan=False))
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = {}
    names = {}
    for event in drawn["traceEvents"]:
        if event["ph"] == "M" and event["name"] == "thread_name":
            names[event["pid"], event["tid"]] = event["args"]["name"]
        elif event["ph"] == "X":
            assert event["dur"] >= 0
            tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in tracks.values():
        spans.sort()
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    kinds = {name.rstrip(" 0123456789") for name in names.values()}
    assert {"compute", "pull receiving", "pull sending", "pull queued"} <= kinds
    assert not any(kind.startswith("background") for kind in kinds)


def test_a_timeline_tells_pulls_pushes_and_background_updates_apart():
    ps, worker = "/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0"

    def send(step_id: int, sender: str, receiver: str, size_bytes: int, begin: int) -> dict[str, object]:
        times = {"requested_us": begin, "ready_us": begin, "started_us": begin + 10, "released_us": begin + 20}
        ends = {"from": sender, "to": receiver, "step_id": step_id}
        return {"name": "x:0", "bytes": size_bytes, "rank": 0, "dropped": 0, **ends, **times}

    nodes = [("layer", "MatMul", worker + "/device:CPU:0", []), ("hold", "TfschedWait", ps + "/device:CPU:0", [])]
    sends = [
        send(7, ps, worker, 4000, 0),
        send(-9, ps, worker, 9000, 20),  # a value that goes ahead
        send(7, worker, ps, 16, 40),
        send(-9, worker, ps, 4000, 60),
    ]
    step = TracedStep(0, 100, {"layer": (0, 50), "hold": (0, 5)}, {"r:0@w": (0, 30), "g:0@p": (50, 90)}, sends)
    links = {"r:0@w": f"{ps}>{worker}", "g:0@p": f"{worker}>{ps}"}
    drawn = timeline(StepTrace(nodes, {}, links, [step]))["traceEvents"]
    processes = {event["pid"]: event["args"]["name"] for event in drawn if event["name"] == "process_name"}
    tracks = {(processes[event["pid"]], event["args"]["name"]) for event in drawn if event["name"] == "thread_name"}
    assert tracks == {
        *((worker, name) for name in ("compute", "pull receiving", "push queued", "push sending")),
        *((worker, name) for name in ("background push queued", "background push sending")),
        *((ps, name) for name in ("barrier", "push receiving", "pull queued", "pull sending")),
        *((ps, name) for name in ("background pull queued", "background pull sending")),
    }


def test_directions_go_by_the_job():
    ps, worker, second = "/job:ps/replica:0/task:1", "/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"
    pairs = [(ps, worker), (worker, ps), (worker, second), (ps, ps), ("", worker)]
    assert [direction(*pair) for pair in pairs] == ["pull", "push", "transfer", "transfer", "transfer"]
    assert in_background({"step_id": -5}) and not in_background({"step_id": 5}) and not in_background({})


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b'{"format":"tfsched-trace/1"}', b"\x1f\x8bgarbage", b'{"format":"tfsched-trace/9"}', b"null"],
)
def test_damaged_files_are_one_sentence(tmp_path, content):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        load_trace(str(path))
    assert "\n" not in str(caught.value)


def test_every_mutation_of_a_trace_is_read_or_refused(trace):
    data = trace.to_json()
    for key in data:
        for value in (None, 3, "x", [], [1], {}, [[]], [{}], float("nan")):
            try:
                StepTrace.from_json({**data, key: value}).to_json()
            except TraceError as error:
                assert "\n" not in str(error)


def test_trace_steps_refuses_no_steps():
    for steps in (0, -1, True, "3"):
        with pytest.raises(tfsched.TfschedError, match="1 or more"):
            trace_steps(None, None, steps)


def script(tmp_path, runs):
    path = tmp_path / "train.py"
    path.write_text(
        textwrap.dedent(
            f"""
            import sys
            import tensorflow as tf
            tf1 = tf.compat.v1
            assert sys.argv[1:] == ["--epochs", "2"]
            with tf.Graph().as_default():
                with tf.device({PS0!r}):
                    w = tf1.get_variable("w", [4], use_resource=True)
                with tf.device({WORKER!r}):
                    loss = tf.reduce_sum(w.read_value() * 2.0)
                with tf1.Session({target()!r}) as session:
                    session.run(tf1.global_variables_initializer())
                    for _ in range({runs}):
                        try:
                            session.run(loss)
                        except Exception:
                            raise SystemExit("the tracer must not look like an error")
            """
        )
    )
    return str(path)


def test_a_users_script_is_traced_unchanged(tmp_path):
    seen = []
    trace = trace_script(script(tmp_path, 100), ["--epochs", "2"], steps=3, skip=2, on_step=seen.append)
    assert seen == [1, 2, 3]
    assert len(trace.steps) == 3
    assert len(trace.links) == 1


def test_a_script_that_ends_too_early_is_said(tmp_path):
    with pytest.raises(tfsched.TfschedError, match="ended after 1 of 3"):
        trace_script(script(tmp_path, 3), ["--epochs", "2"], steps=3, skip=2)


def test_a_gzipped_trace_is_gzip(trace, tmp_path):
    path = tmp_path / "t.json.gz"
    trace.save(str(path))
    assert json.loads(gzip.decompress(path.read_bytes()))["format"] == "tfsched-trace/1"
