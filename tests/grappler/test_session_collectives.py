"""All-reduces of sessions' graphs: CollectiveReduce as well, constant keys, and none of them in functions."""

import tensorflow as tf
from graphs import WORKER, copy
from tensorflow.core.framework import types_pb2

import tfsched
from tfsched._options import Options
from tfsched.grappler.rewrite import rewrite

TASK = WORKER.rpartition("/device")[0]
SIZE = 50_000


def step(version, key=7):
    """An all-reduce and the update that takes its result, with constant keys."""
    tfsched.load()
    with tf.Graph().as_default() as graph, tf.device(WORKER):
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[SIZE], shared_name="v")
        gradient = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32) * 2.0
        attrs = {"merge_op": "Add", "final_op": "Id", "name": "reduce"}
        if version == 1:
            reduced = tf.raw_ops.CollectiveReduce(
                input=gradient, group_size=2, group_key=3, instance_key=key, subdiv_offsets=[0], **attrs
            )
        else:
            reduced = tf.raw_ops.CollectiveReduceV2(
                input=gradient, group_size=2, group_key=3, instance_key=key, ordering_token=[], **attrs
            )
        tf.raw_ops.AssignSubVariableOp(resource=handle, value=reduced, name="update")
    return graph.as_graph_def()


def rewritten(graph, **arguments):
    return rewrite(copy(graph), Options(), ["update"], local=(TASK,), **arguments)


def nodes_by_name(graph):
    return {node.name: node for node in graph.node}


def test_the_old_ops_attributes_become_inputs():
    graph, report = rewritten(step(1))
    assert report.exchanged.packs == 1
    nodes = nodes_by_name(graph)
    agree = nodes["tfsched/all_reduce/reduce/agree"]
    values = [tf.make_ndarray(nodes[name].attr["value"].tensor) for name in agree.input]
    assert [int(value) for value in values] == [2, 3, 7] and all(value.shape == () for value in values)
    assert list(nodes["tfsched/all_reduce/reduce/reduce_0"].input[1:4]) == list(agree.input)
    # The stock op keeps its keys, by which the sessions of all workers find the number of the step.
    assert nodes["reduce/stock"].op == "CollectiveReduce" and nodes["reduce/stock"].attr["instance_key"].i == 7


def test_constant_keys_of_the_new_op_stay_what_they_are():
    before = step(2)
    graph, report = rewritten(before)
    assert report.exchanged.packs == 1
    nodes = nodes_by_name(graph)
    assert list(nodes["tfsched/all_reduce/reduce/agree"].input) == list(nodes_by_name(before)["reduce"].input[1:4])


def test_twice_is_once():
    for version in (1, 2):
        graph, _ = rewritten(step(version))
        again, report = rewritten(graph)
        assert again is None and report.exchanged.packs == 0


def test_in_a_function_constant_keys_tell_no_calls_apart():
    for version in (1, 2):
        graph = step(version)
        argument = graph.node.add(name="argument", op="_Arg", device=WORKER)
        argument.attr["T"].type = types_pb2.DT_INT32
        argument.attr["index"].i = 0
        changed, report = rewritten(graph)
        assert changed is None and report.exchanged.kept == {"with a constant key in a function": 1}


def test_what_tensorflow_has_packed_into_shared_memory_stays():
    graph = step(1)
    (gradient,) = [node for node in graph.node if node.op == "Mul"]
    gradient.op = "_ScopedAllocatorConcat"
    changed, report = rewritten(graph)
    assert changed is None and report.exchanged.kept == {"packed by TensorFlow's scoped allocator": 1}


def test_the_barrier_is_kept_where_a_session_all_reduces():
    arguments = {"capable": {TASK}, "client": "one", "home": TASK}
    graph, report = rewrite(copy(step(2)), Options(barrier=False), ["update"], local=(TASK,), **arguments)
    assert (
        report.exchanged.packs == 1
        and report.crossing == []
        and list(report.kept.values()) == ["gradients are all-reduced in a session"]
    )
    # Grappler shows the pass its own work again.
    assert rewrite(copy(graph), Options(barrier=False), ["update"], local=(TASK,), **arguments)[1].crossing == []
