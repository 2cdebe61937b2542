"""All-reduces that cross the barrier: what of a function's graph moves with them, and what keeps its barrier, and why."""

import copy

import pytest
import tensorflow as tf
from graphs import WORKER
from tensorflow.core.framework import types_pb2
from test_collectives import LARGE, TASK, Step, by_op

import tfsched
from tfsched._options import Options
from tfsched.grappler.rewrite import rewrite

CROSSING = Options(barrier=False)
EXCHANGE = "TfschedAllReduceIfAgreed"
REDUCED = "its reduced gradient, or one that is exchanged with it, is used in the step"


@pytest.fixture(autouse=True, scope="module")
def _library():
    tfsched.load()


def function_of(step, returned="layer0"):
    """The step as a function's graph: its variables are arguments, and it returns one of its tensors."""
    graph = copy.deepcopy(step.graph)
    handles = by_op(graph, "VarHandleOp")
    for position, node in enumerate(handles):
        dtype, shape = node.attr["dtype"].type, copy.deepcopy(node.attr["shape"].shape)
        node.op = "_Arg"
        node.attr.clear()
        node.attr["T"].type = types_pb2.DT_RESOURCE
        node.attr["index"].i = position
        node.attr["_handle_dtypes"].list.type.append(dtype)
        node.attr["_handle_shapes"].list.shape.append(shape)
    result = graph.node.add(name="result", op="_Retval", device=WORKER, input=[returned])
    result.attr["T"].type = types_pb2.DT_FLOAT
    result.attr["index"].i = 0
    return graph


def rewritten(graph, fetches, options=CROSSING):
    return rewrite(copy.deepcopy(graph), options, ["result"], fetches, local=(TASK,), client="trainer")


def body_of(graph):
    (function,) = [one for one in graph.library.function if one.signature.name.startswith("tfsched_background_")]
    return function


def in_body(graph, op):
    return [node for node in body_of(graph).node_def if node.op == op]


@pytest.mark.parametrize("packs", [((LARGE, 10, 3 * LARGE, 20),), ((LARGE, 8), (3 * LARGE, 9)), ((LARGE,),)])
def test_all_reduces_and_updates_move(packs):
    step = Step(packs)
    graph, report = rewritten(function_of(step), step.fetches)
    count = sum(map(len, packs))
    assert len(report.crossing) == count and report.kept == {} and report.home == TASK
    assert by_op(graph, EXCHANGE) == by_op(graph, "TfschedAllReduce") == by_op(graph, "AssignSubVariableOp") == []
    assert len(in_body(graph, EXCHANGE)) == report.exchanged.tensors
    assert len(in_body(graph, "TfschedUpdate")) == len(in_body(graph, "TfschedNotify")) == count
    # Readers who are no trainers wait, too.
    (expect,) = in_body(graph, "TfschedExpect")
    assert expect.attr["shared"].b
    # What is handed over: a tensor for each exchange, and of each pack its call's key and whether it is exchanged.
    assert len(by_op(graph, "TfschedPut")) == report.exchanged.tensors + 2 * len(packs)
    nodes = {node.name: node for node in graph.node}
    assert {node.name for node in step.graph.node if node.op == "NoOp"} <= set(nodes)
    (join,) = by_op(graph, "TfschedJoin")
    exchanges = [node.name for node in graph.node if "/reduce_" in node.name and node.op == "NoOp"]
    assert len(exchanges) == report.exchanged.tensors
    assert all(list(nodes[name].input) == ["^" + join.name] for name in exchanges)


def test_nothing_in_the_step_waits_for_what_has_moved():
    """Else it would wait for itself: the hand-over comes behind stock's branch."""
    step = Step(packs=((LARGE, 8), (3 * LARGE, 9)))
    graph, _ = rewritten(function_of(step), step.fetches)
    nodes = {node.name: node for node in graph.node}
    (join,) = by_op(graph, "TfschedJoin")
    seen, stack = set(), [join.name]
    while stack:
        for text in nodes[stack.pop()].input:
            name = text.lstrip("^").partition(":")[0]
            assert name != join.name
            if name not in seen:
                seen.add(name)
                stack.append(name)
    # Stock's all-reduces run one after another still.
    assert "^tfsched/all_reduce/reduce0/handed" in nodes["reduce1/stock"].input


def test_twice_is_once():
    step = Step()
    once, _ = rewritten(function_of(step), step.fetches)
    again, report = rewritten(once, step.fetches)
    assert again is None and report.exchanged.packs == 0


@pytest.mark.parametrize("returned, kept", [("split0:1", 2), ("split0", 1)])
def test_a_reduced_gradient_that_is_returned_keeps_its_variables_barrier(returned, kept):
    step = Step()
    graph, report = rewritten(function_of(step, returned), step.fetches)
    # One that is exchanged with others keeps theirs, too.
    assert len(report.crossing) == 4 - kept and list(report.kept.values()) == [REDUCED] * kept
    assert len(by_op(graph, EXCHANGE)) == 1 and len(in_body(graph, EXCHANGE)) == 2
    stand_in = next(node for node in graph.node if node.name == "reduce0")
    assert stand_in.op == "NoOp" and f"^{by_op(graph, EXCHANGE)[0].name}" in stand_in.input


def test_a_session_and_a_step_with_the_barrier_stay_as_they_are():
    step = Step()
    graph, report = step.rewritten(CROSSING, client="trainer", home=TASK)
    assert by_op(graph, EXCHANGE) == [] and report.crossing == [] and len(by_op(graph, "TfschedAllReduce")) == 3
    graph, report = rewritten(function_of(step), step.fetches, Options())
    assert by_op(graph, EXCHANGE) == [] and report.crossing == [] and len(by_op(graph, "TfschedAllReduce")) == 3


def test_the_plan_is_the_same_with_and_without_the_barrier():
    step = Step()
    plans = [
        by_op(rewritten(function_of(step), step.fetches, options)[0], "TfschedAgree")[0].attr["plan"].s
        for options in (CROSSING, Options())
    ]
    assert plans[0] == plans[1]


def test_an_all_reduce_that_was_not_agreed_on_gives_back_its_input():
    keys = {"group_size": 2, "group_key": 1, "instance_key": 3}
    attrs = dict.fromkeys(("element", "whole_bytes", "rank", "contribution_rank", "credit_bytes"), 0)
    with tf.device("CPU:0"):
        result = tfsched.ops.library.load().tfsched_all_reduce_if_agreed(
            input=tf.range(5.0),
            agreed=False,
            reduction="Add",
            mean=False,
            follow_link=False,
            elements=5,
            piece_bytes=1,
            transfer="t",
            policy="fifo",
            count=1,
            **keys,
            **attrs,
        )
    assert result.numpy().tolist() == [0, 1, 2, 3, 4]
