"""How a function's trace is put together, and how another machine's clock is told from this one's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorflow.core.framework import graph_pb2

from tfsched.tracing import TraceError
from tfsched.tracing.directions import in_background
from tfsched.tracing.function_steps import Assembler
from tfsched.tracing.remote import clock_ahead_us

PS, WORKER, CHIEF = "/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0", "/job:chief/replica:0/task:0"


def graph(*nodes):
    made = graph_pb2.GraphDef()
    for name, op, task, inputs in nodes:
        made.node.add(name=name, op=op, device=f"{task}/device:CPU:0", input=inputs)
    return made


def step_graph():
    """Two reads, one of them behind a proxy; a gradient that goes back."""
    return graph(
        ("read_a", "ReadVariableOp", PS, []),
        ("read_b", "ReadVariableOp", PS, []),
        ("proxy", "TfschedProxy", PS, ["read_a"]),
        ("mul", "Mul", WORKER, ["proxy", "read_b"]),
        ("update", "Assign", PS, ["mul"]),
    )


def row(name, sender, receiver, size_bytes, begin, step_id=-7, rank=-1):
    times = {"requested_us": begin, "ready_us": begin + 1, "started_us": begin + 2, "released_us": begin + 5}
    ends = {"from": sender, "to": receiver, "step_id": step_id, "rank": rank, "dropped": 0}
    return {"name": name, "bytes": size_bytes, **ends, **times}


def made(rows, ops=()):
    assembler = Assembler([graph(("alone", "NoOp", WORKER, [])), step_graph()])
    assembler.add_step(100, 200, ops)
    assembler.add_sends(rows)
    return assembler.finish()


def test_ranked_chunks_and_unranked_rows_find_their_transfers():
    rows = [
        row("read_a:0#0/2", PS, WORKER, 60, 110, rank=0),
        row("read_a:0#1/2", PS, WORKER, 40, 120, rank=1),
        row("edge_12_read_b", PS, WORKER, 30, 115),
        row("edge_3_mul", WORKER, PS, 20, 150),
        row("12_34", WORKER, CHIEF, 8, 160),  # a result
    ]
    trace = made(rows, [("mul", 130, 4), ("mul", 140, 6), ("proxy", 101, 1), ("unheard-of", 1, 1)])
    a, b, gradient = f"read_a:0@{WORKER}", f"read_b:0@{WORKER}", f"mul:0@{PS}"
    assert trace.links == {a: f"{PS}>{WORKER}", b: f"{PS}>{WORKER}", gradient: f"{WORKER}>{PS}"}
    assert trace.sizes == {a: 100, b: 30, gradient: 20}
    (step,) = trace.steps
    assert step.transfers == {a: (110, 125), b: (115, 120), gradient: (150, 155)}
    assert step.ops == {"mul": (130, 10)}  # of a loop, all together
    assert {one["to"] for one in step.sends} == {PS, WORKER}


def test_what_a_background_update_sends_is_told_from_the_steps_own():
    rows = [
        row("read_a:0", PS, WORKER, 16, 110, step_id=-7, rank=0),
        row("edge_9_stuff", PS, WORKER, 0, 111, step_id=-7),  # a control edge
        row("gradient:0", WORKER, PS, 90, 120, step_id=-3, rank=0),
        row("read_a:0", PS, WORKER, 90, 130, step_id=-3, rank=0),  # goes ahead, under the pull's name
    ]
    trace = made(rows)
    assert [in_background(one) for one in trace.steps[0].sends] == [False, False, True, True]
    assert trace.sizes == {f"read_a:0@{WORKER}": 16}


def test_a_function_within_one_task_has_no_trace():
    with pytest.raises(TraceError, match="No traced function spans several tasks"):
        Assembler([graph(("alone", "NoOp", WORKER, []))])


@given(
    st.integers(-(10**12), 10**12),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=5),
)
def test_a_clocks_difference_is_known_to_half_of_the_quickest_answer(ahead_us, questions):
    answers = [(asked, asked + there + ahead_us, asked + there + back) for asked, there, back in questions]
    quickest_us = min(back - asked for asked, _, back in answers)
    found = clock_ahead_us(answers)
    assert abs(found - ahead_us) <= quickest_us / 2 + 1 or (found == 0 and abs(ahead_us) <= quickest_us)


def test_one_clock_is_never_corrected():
    assert clock_ahead_us([(1000, 1001, 1400), (2000, 2299, 2300)]) == 0
