"""Across the barrier, values that are sent ahead and values that the next step pulls leave in one order."""

import json

import pytest
import tensorflow as tf
import test_barrier
from graphs import PS0, WORKER

import tfsched
from tfsched._options import Options
from tfsched.grappler.barrier.piecewise import PIECE_OP
from tfsched.grappler.reading.transfers import PROXY_OP, SPLIT_OP
from tfsched.grappler.rewrite import rewrite
from tfsched.ordering import Plan

tf1 = tf.compat.v1
HOME = WORKER.rpartition("/device")[0]
LARGE, SMALL = [64, 64], [64]  # 16 KiB are sent ahead, 256 bytes are not


@pytest.fixture(autouse=True, scope="module")
def _library():
    tfsched.load()


def crossing(layers, options):
    """A chain of layers with a large and a small variable each; what the step and what its background function send."""
    with tf.Graph().as_default() as graph:
        hidden = tf1.placeholder_with_default(tf.ones([2, 64]), [2, 64])
        variables = []
        for layer in range(layers):
            for name, shape in (("weight", LARGE), ("bias", SMALL)):
                with tf.device(PS0):
                    variable = tf1.get_variable(f"{name}{layer}", shape, use_resource=True)
                    value = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=tf.float32, name=f"read_{name}{layer}")
                variables.append(variable)
                with tf.device(WORKER):
                    hidden = hidden @ value if name == "weight" else tf.tanh(hidden + value)
        with tf.device(WORKER):
            loss = tf.reduce_mean(hidden)
            gradients = tf.gradients(loss, variables)
        update = tf1.train.GradientDescentOptimizer(0.1).apply_gradients(zip(gradients, variables, strict=True))
        graph_def = graph.as_graph_def()
    handles = {node.name for node in graph_def.node if node.op == "VarHandleOp"}
    for node in graph_def.node:
        if node.name in handles or set(node.input) & handles:
            node.device = PS0
        node.device = node.device or WORKER
    result, report = rewrite(graph_def, options, [loss.name, update.name], home=HOME)
    assert len(report.crossing) == 2 * layers
    body = [node for function in result.library.function for node in function.node_def]
    return sent(result.node), sent(body)


def sent(nodes):
    """Name of a tensor -> the ranks of all pieces in which a parameter server sends it."""
    found = {}
    for node in nodes:
        if node.op in (PROXY_OP, SPLIT_OP) and node.device.startswith("/job:ps"):
            name = node.attr["transfer"].s.decode()
            first, count = node.attr["rank"].i, node.attr["N"].i if node.op == SPLIT_OP else 1
            found[name] = list(node.attr["ranks"].list.i) or [first + chunk for chunk in range(count)]
        elif node.op == PIECE_OP:  # updates a piece and sends it on
            for name, rank in zip(node.attr["transfers"].list.s, node.attr["ranks"].list.i, strict=True):
                found.setdefault(name.decode(), []).append(rank)
    return found


@pytest.mark.parametrize("partition_bytes", [0, 4096])
@pytest.mark.parametrize("policy", ["bytescheduler", "p3", "prophet"])
def test_a_value_that_is_sent_ahead_is_as_urgent_as_the_pull_that_it_spares(policy, partition_bytes):
    layers = 5
    pulled, ahead = crossing(layers, Options(barrier=False, policy=policy, partition_bytes=partition_bytes))
    pulls = [(f"read_{name}{layer}:0", name == "weight") for layer in range(layers) for name in ("weight", "bias")]
    assert set(pulled) == {name for name, _ in pulls}
    in_order = sorted(pulled, key=lambda name: pulled[name][0])
    assert in_order == [name for name, _ in pulls]
    # The background function's nodes have names of their own, so its values are told by their ranks.
    assert len(ahead) == layers
    chunks = 4 if partition_bytes else 1
    first_pulled = [pulled[name][0] for name, large in pulls if large]
    assert sorted(ranks[0] for ranks in ahead.values()) == first_pulled
    for ranks in ahead.values():
        assert len(ranks) == chunks
        # Not behind the next pull, of which the value is needed later, nor before the one of which it is needed sooner.
        here = first_pulled.index(ranks[0])
        small = pulled[f"read_bias{here}:0"][0]
        assert all(first_pulled[here] <= rank < small for rank in ranks)


@pytest.mark.parametrize("barrier", [True, False])
@pytest.mark.parametrize("partition_bytes", [0, 4096])
def test_fifo_gives_all_transfers_one_rank(barrier, partition_bytes):
    """So that what is ready first goes first, whatever comes first in the graph."""

    def ranks(**more):
        step = test_barrier.Step(side=48, servers=(PS0, PS0))
        options = Options(partition_bytes=partition_bytes, barrier=barrier, **more)
        result, _, body = step.cut(step.loss, step.apply(), options=options)
        tags = [node for node in (*result.node, *body.values()) if node.op in (PROXY_OP, SPLIT_OP)]
        assert len(tags) >= 2
        found = [list(node.attr["ranks"].list.i) or [node.attr["rank"].i] for node in tags]
        return {rank for ranks in found for rank in ranks}

    assert ranks(ordering="fifo", policy="bytescheduler") == {0}
    assert len(ranks(ordering="tio", policy="bytescheduler")) > 1
    assert len(ranks(ordering="fifo", policy="tictac")) > 1


@pytest.mark.parametrize("together", [(), (1, 3), (0, 1, 2, 3, 4)])
def test_equal_priorities_follow_the_forward_pass(together):
    """What is sent ahead has a consumer of its own when the step begins, and what is joined has one that is new."""
    layers = 5
    pulls = [f"read_{name}{layer}:0" for layer in range(layers) for name in ("weight", "bias")]
    group = tuple(f"read_bias{layer}:0@{HOME}" for layer in together)
    plan = Plan("mine", dict.fromkeys((f"{name}@{HOME}" for name in pulls), 0.0), groups=(group,) if group else None)
    options = Options(barrier=False, policy="bytescheduler", plan=json.dumps(plan.to_json()))
    pulled, ahead = crossing(layers, options)
    joined = [name for name in pulled if name not in pulls]
    expected = [name for name in pulls if f"{name}@{HOME}" not in group]
    if together:
        expected.insert(2 * together[0] + 1, *joined)
    assert sorted(pulled, key=lambda name: pulled[name][0]) == expected
    assert len(ahead) == layers
