"""What a trace of all-reduces knows: when gradients were there and needed, what a message costs, and the plan of it."""

from __future__ import annotations

import dataclasses
import json

import pytest
from tensorflow.core.framework import graph_pb2

from tfsched.errors import TfschedError
from tfsched.tracing import StepTrace, TracedStep
from tfsched.tracing.exchanges import TracedExchange, dag_of, rate_of
from tfsched.tracing.function_steps import Assembler
from tfsched.tracing.timeline import timeline

ME, PEER, THIRD = (f"/job:worker/replica:0/task:{number}" for number in range(3))
DEVICE = f"{ME}/device:CPU:0"
A, B = "flat_a:0@all-reduce", "b:0@all-reduce"


def exchange(number, transfer="t"):
    name, size, maker, use = [(A, 4000, "flat_a", "use_a"), (B, 12000, "b", "use_b")][number]
    return TracedExchange(name, size, maker, use, transfer)


def row(name, size_bytes, begin, end, to=PEER):
    times = {"requested_us": begin, "ready_us": begin, "started_us": begin, "released_us": end}
    return {"name": name, "from": ME, "to": to, "bytes": size_bytes, "step_id": -1, "rank": 0, "dropped": 0, **times}


NODES = [
    ("use_a", "MatMul", DEVICE, []),
    ("use_b", "MatMul", DEVICE, ["use_a"]),
    ("grad_a", "MatMul", DEVICE, ["use_b"]),
    ("flat_a", "Reshape", DEVICE, ["grad_a", "^use_b"]),
    ("b", "MatMul", DEVICE, ["use_b"]),
]
OPS = {"use_a": (1000, 10), "use_b": (1010, 20), "b": (1030, 30), "grad_a": (1060, 40)}


def step(sends=(), ops=OPS):
    return TracedStep(990, 2000, dict(ops), {}, list(sends))


SENDS = [row("t", 4000, 1100, 1150), row("u", 12000, 1150, 1270)]


def test_gradients_are_ready_when_made_and_needed_when_first_used():
    dag = dag_of([exchange(0), exchange(1, "u")], NODES, [step(SENDS)])
    # b at 1060, and flat_a, which was not recorded, when grad_a was done: 1100.
    times = dict(zip((op.name for op in dag.ops), dag.times_us(), strict=True))
    assert [op.name for op in dag.recvs] == [B, A]
    assert times[f"ready/{A}"] == 40.0 and times["begin"] == 0.0
    assert times[f"use/{A}"] == 10.0 and times[f"use/{B}"] == 60.0 - 10.0  # until the first gradient
    assert [op.size_bytes for op in dag.recvs] == [12000, 4000]


def test_the_rate_is_a_line_through_sizes_and_times():
    # 100 µs each, and 1 byte in 0.01 µs.
    sizes = [40000, 80000, 120000, 20000, 60000]
    sends, at = [], 1100
    for size in sizes:
        sends.append(row("t", size, 1100, at + 100 + size // 100))  # all handed over at once
        at += 100 + size // 100
    rate = rate_of([TracedExchange("x", sum(sizes), "b", "", "t")], [step(sends)])
    assert rate.startup_us == pytest.approx(100.0) and rate.bandwidth_bps == pytest.approx(8e8)
    # Of one size nothing can be told apart; a start-up of nothing would have planners cut as finely as can be.
    for took_us, startup_us in ((400, 50.0), (60, 30.0)):
        alike = [row("t", 4000, 1100 + took_us * k, 1100 + took_us * (k + 1)) for k in range(4)]
        rate = rate_of([TracedExchange("x", 16000, "b", "", "t")], [step(alike)])
        assert rate.startup_us == startup_us and rate.bandwidth_bps == pytest.approx(8e6 * 4000 / (took_us - startup_us))


def test_three_workers_send_what_belongs_to_one_tensor_several_times():
    sends = [row("t", 1000, 1100 + 200 * k, 1300 + 200 * k, to) for k, to in enumerate([PEER, THIRD, PEER, THIRD])]
    rate = rate_of([TracedExchange("x", 3000, "b", "", "t")], [step(sends)])
    assert rate.startup_us == 4 * 50.0
    assert rate.bandwidth_bps == pytest.approx(8e6 * 3000 / 600)  # of the tensor's bytes, not of the link's


def test_messages_of_one_size_are_not_taken_for_free():
    # Planned without a start-up, this was cut into pieces of 16 KiB: a step of VGG16 took 2.5 times as long as with 1 MB.
    alike = [row("t", 1_000_000, 1100 + 4000 * k, 5100 + 4000 * k) for k in range(40)]
    exchanges = [dataclasses.replace(exchange(number), size_bytes=20_000_000) for number in (0, 1)]
    links = dict.fromkeys((A, B), f"{ME}>all-reduce")
    trace = StepTrace(NODES, dict.fromkeys((A, B), 20_000_000), links, [step(alike)], exchanges=exchanges)
    plan = trace.plan("buckets")
    assert all(size == 0 or size > 100_000 for size in plan.partition_bytes.values()), plan


def test_steps_of_stock_all_reduces_say_so():
    with pytest.raises(TfschedError, match=r"all-reduced by stock TensorFlow; call tfsched\.enable"):
        dag_of([exchange(0)], NODES, [step()])
    with pytest.raises(TfschedError, match="do not hold the op flat_a"):
        dag_of([exchange(0)], NODES, [step(SENDS, ops={})])


def kept_graph():
    graph = graph_pb2.GraphDef()
    for name, op, device, inputs in NODES:
        graph.node.add(name=name, op=op, device=device, input=inputs)
    node = graph.node.add(name="r", op="TfschedAllReduce", device=DEVICE)
    node.attr["transfer"].s = b"flat_a and 1 more"
    for number in (0, 1):
        one = exchange(number)
        for attr, kind, value in (
            ("names", "s", one.name.encode()),
            ("bytes", "i", one.size_bytes),
            ("makers", "s", one.maker.encode()),
            ("uses", "s", one.use.encode()),
        ):
            getattr(node.attr[f"_tfsched_{attr}"].list, kind).append(value)
    return graph


def assembled():
    assembler = Assembler([kept_graph()])
    for begin in (0, 5000):
        assembler.add_step(990 + begin, 1200 + begin, [(name, at + begin, took) for name, (at, took) in OPS.items()])
    name = "flat_a and 1 more"
    rows = [row(name, 8000, 1100 + k, 1180 + k) for k in (0, 80, 5000, 5080)]
    rows.append(row(name, 8000, 1500, 1600))  # behind the step's end, before the next: across the barrier
    rows.append(row("edge_1_other", 1, 1100, 1101))
    assembler.add_sends(rows)
    return assembler.finish()


def test_a_functions_trace_has_its_all_reduces():
    trace = assembled()
    assert trace.receivers() == ["all-reduce"] and trace.sizes == {A: 4000, B: 12000}
    assert [len(one.sends) for one in trace.steps] == [3, 2]
    assert trace.steps[0].transfers == {A: (1100, 1600), B: (1100, 1600)}
    assert {sent["step_id"] for sent in trace.steps[0].sends} == {1}
    again = StepTrace.from_json(json.loads(json.dumps(trace.to_json())))
    assert again == trace
    plan = again.plan("layer")
    assert plan.priorities[A] < plan.priorities[B] and plan.metadata["steps"] == 2
    assert again.plan("pace").groups is not None
    assert timeline(again)["traceEvents"]


def test_what_a_planner_sends_whole_is_planned_in_pieces():
    """A receiver would have to take in and sum a message of half a gigabyte behind its last byte."""
    trace = assembled()
    for name in ("mg-wfbp", "dynacomm", "optimal", "prophet", "us-byte"):
        assert set(trace.plan(name).partition_bytes.values()) == {1_000_000}, name
    sizes = set(trace.plan("pace").partition_bytes.values())
    assert len(sizes) == 1 and sizes.isdisjoint({0, 1_000_000})  # its own
    assert not trace.plan("tio").partition_bytes  # an order says nothing about pieces


def test_pieces_grow_with_the_workers_that_share_them():
    """Of sixteen workers each sends a sixteenth of a piece to each other one: pieces of 1 MB would be messages of 62 kB."""
    peers = [f"/job:worker/replica:0/task:{number}" for number in range(1, 16)]
    sends = [row("t", 250, 1100 + 40 * k, 1140 + 40 * k, to) for k, to in enumerate(peers * 2)]
    trace = assembled()
    trace = dataclasses.replace(
        trace,
        steps=[dataclasses.replace(one, sends=sends) for one in trace.steps],
        exchanges=[dataclasses.replace(one, transfer="t") for one in trace.exchanges],
    )
    assert set(trace.plan("mg-wfbp").partition_bytes.values()) == {4_000_000}
