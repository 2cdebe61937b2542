"""Ordering of pushes: what counts as one, how urgent it is, under which policies, and the graph of a background function."""

from __future__ import annotations

import json

import pytest
import tensorflow as tf
from graphs import PS0, PS1, TASKS, WORKER, canonical, copy

from tfsched import _options
from tfsched._options import Options
from tfsched.graph_ops import is_update
from tfsched.grappler.reading.graph import GraphView
from tfsched.grappler.reading.transfers import PROXY_OP, SPLIT_OP, find_transfers
from tfsched.grappler.rewrite import rewrite
from tfsched.grappler.sending import pushes
from tfsched.grappler.sending.proxies import strip_proxies
from tfsched.ordering import Plan

tf1 = tf.compat.v1
PS, WORKER_TASK = TASKS[0], TASKS[2]


def build(function):
    with tf.Graph().as_default() as graph:
        fetches = function()
        return graph.as_graph_def(), [fetch.name for fetch in fetches]


@pytest.fixture
def tagging(monkeypatch):
    """Has the pass tag pushes under "fifo", which holds back nothing either."""
    monkeypatch.setattr(_options, "NEVER_WAITING", frozenset({"fifo"}))
    return {"policy": "fifo"}


def tagged(graph_def, device=WORKER):
    """Source -> (rank, count) of what a device's task sends in order."""
    nodes = [node for node in graph_def.node if node.op in (PROXY_OP, SPLIT_OP) and node.device == device]
    return {node.attr["transfer"].s.decode(): (node.attr["rank"].i, node.attr["count"].i) for node in nodes}


def training(use_resource=True, optimizer=None, width=32):
    """A chain of three layers, trained; returns the loss, the update and the names of the gradients of layers 0, 1, 2."""
    with tf.device(PS0):
        weights = [tf1.get_variable(f"w{i}", [width, width], use_resource=use_resource) for i in range(3)]
    with tf.device(WORKER):
        hidden = tf1.placeholder(tf.float32, [4, width], "x")
        for index, weight in enumerate(weights):
            hidden = tf.matmul(hidden, weight, name=f"layer{index}")
        loss = tf.reduce_mean(hidden)
        gradients = tf1.gradients(loss, weights)
    with tf.device(PS0):
        optimizer = optimizer or tf1.train.GradientDescentOptimizer(0.5)
        update = optimizer.apply_gradients(zip(gradients, weights, strict=True))
    training.gradients = [one.name for one in gradients]
    return [loss, update]


def place(graph_def):
    """What the session's placer does: ops go where their variables are."""
    for node in graph_def.node:
        if node.op in ("ReadVariableOp", "AssignVariableOp") or is_update(node.op) or not node.device:
            node.device = PS0
    return graph_def


OPTIMIZERS = [
    tf1.train.GradientDescentOptimizer,
    lambda rate: tf1.train.MomentumOptimizer(rate, 0.9),
    tf1.train.AdamOptimizer,
    tf1.train.RMSPropOptimizer,
]


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("partition_bytes", [0, 4096, 1024 * 1024])
def test_pushes_go_in_the_order_of_the_next_pulls(tagging, optimizer, use_resource, partition_bytes):
    graph_def, fetches = build(lambda: training(use_resource, optimizer(0.5), width=64))
    place(graph_def)
    options = Options(**tagging, partition_bytes=partition_bytes)
    changed, report = rewrite(copy(graph_def), options, fetches)
    chunks = 4 if partition_bytes == 4096 else 1
    assert report.variable_ranks == {(PS, f"w{index}"): index * chunks for index in range(3)}
    assert report.pushes == 3
    ranks = tagged(changed)
    gradients = [name for name in training.gradients if name in ranks]
    assert gradients == training.gradients
    first = min(ranks[name][0] for name in gradients)
    assert [ranks[name][0] - first for name in gradients] == [0, chunks, 2 * chunks]
    assert len({count for _, count in ranks.values()}) == 1
    again, _ = rewrite(copy(changed), options, fetches)
    assert canonical(again) == canonical(changed)
    assert canonical(strip_proxies(copy(changed))) == canonical(graph_def)


@pytest.mark.parametrize("policy", ["tictac", "fifo"])
def test_pushes_stay_as_they_are_under_other_policies(policy):
    graph_def, fetches = build(training)
    changed, report = rewrite(place(graph_def), Options(policy=policy), fetches)
    assert report.pushes == 0
    assert not set(training.gradients) & set(tagged(changed))
    assert report.unordered["made from other transfers"] == 3
    assert len(report.variable_ranks) == 3


def test_the_policies_are_those_that_never_wait():
    assert {"bytescheduler", "p3", "prophet"} == _options.NEVER_WAITING


def test_towers_push_in_the_order_of_their_own_pulls(tagging):
    """Two workers, gradients averaged on the parameter server: each worker's pushes have ranks of their own."""
    other = WORKER.replace("task:0", "task:1")

    def function():
        with tf.device(PS0):
            weights = [tf1.get_variable(f"w{i}", [8, 8], use_resource=True) for i in range(2)]
        towers = []
        for device in (WORKER, other):
            with tf.device(device):
                hidden = tf1.placeholder(tf.float32, [4, 8])
                for weight in weights:
                    with tf.device(PS0):
                        read = weight.read_value()
                    hidden = tf.matmul(hidden, read)
                gradients = tf1.gradients(tf.reduce_mean(hidden), weights)
                towers.append([tf.identity(one, f"g{index}") for index, one in enumerate(gradients)])
        with tf.device(PS0):
            means = [tf.add_n(pair) / 2.0 for pair in zip(*towers, strict=True)]
            return [tf1.train.GradientDescentOptimizer(0.5).apply_gradients(zip(means, weights, strict=True))]

    graph_def, fetches = build(function)
    place(graph_def)
    changed, report = rewrite(graph_def, Options(**tagging), fetches)
    assert report.pushes == 4
    assert tagged(changed) == {"g0:0": (0, 2), "g1:0": (1, 2)}
    assert tagged(changed, other) == {"g0_1:0": (0, 2), "g1_1:0": (1, 2)}


def made(name, shape=(4, 4)):
    """A tensor on the worker that was made from one of PS1."""
    with tf.device(PS1):
        far = tf1.placeholder(tf.float32, shape, f"far_{name}")
    with tf.device(WORKER):
        return tf.negative(far, name=name)


def found(function):
    """Names of the transfers that are pushes in a graph, the most urgent first, w1 before w0."""
    graph_def, _ = build(function)
    view = GraphView(place(graph_def))
    transfers = find_transfers(view, [True] * len(view.nodes))
    groups = pushes.find_pushes(view, [True] * len(view.nodes), transfers, {(PS, "w1"): 3, (PS, "w0"): 4})
    return {tasks: [view.nodes[one.source].name for one in group] for tasks, group in groups.items()}


def variable(name):
    with tf.device(PS0):
        return tf1.get_variable(name, [4, 4], use_resource=True)


def test_what_leads_elsewhere_too_is_no_push():
    def function():
        a, b, c, d, e = (made(name) for name in "abcde")
        w = variable("w0")
        with tf.device(PS0):
            w.assign_sub(tf.abs(a))
            w.assign_sub(tf.abs(b) + w.read_value())  # still nothing but the update
            both = tf.exp(c)
            w.assign_sub(both)
            tf1.Print(d, [d])
            w.assign_sub(d)
        with tf.device(WORKER):
            tf.identity(both)
        with tf.device(PS0):
            tf.abs(e, name="nobody_takes_it")
        return []

    assert found(function) == {(WORKER_TASK, PS): ["a", "b"]}


def test_the_earliest_variable_counts_and_unknown_ones_come_last():
    def function():
        a, b, c, both = made("a"), made("b"), made("c"), made("both")
        unknown, w0, w1 = variable("unknown"), variable("w0"), variable("w1")
        with tf.device(PS0):
            unknown.assign_sub(a)
            w0.assign_sub(b)
            w1.assign_sub(c)
            w0.assign_sub(tf.abs(both))
            w1.assign_sub(tf.exp(both))
        return []

    (group,) = found(function).values()
    assert group[2:] == ["b", "a"]
    assert set(group[:2]) == {"c", "both"}


def test_sparse_pushes_bring_rows_and_indices():
    def function():
        rows = made("rows", (2, 4))
        with tf.device(WORKER):
            indices = tf.cast(tf.argmax(rows, 1), tf.int32, name="indices")
        w = variable("w1")
        with tf.device(PS0):
            return [tf.raw_ops.ResourceScatterSub(resource=w.handle, indices=indices, updates=rows)]

    (group,) = found(function).values()
    assert sorted(group) == ["indices", "rows"]


def background():
    """A function's graph: mailboxes on the worker, scaling and updates on the parameter server."""
    taken = []
    for index in (0, 1, 2):
        with tf.device(WORKER):
            taken.append(tf1.placeholder(tf.float32, [64, 64], f"take{index}"))
    with tf.device(WORKER):
        rate = tf1.placeholder(tf.float32, [], "rate")
    with tf.device(PS0):
        for index in (0, 1, 2):
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[64, 64], shared_name=f"w{index}", name=f"handle{index}")
            tf.raw_ops.ResourceApplyGradientDescent(var=handle, alpha=rate, delta=taken[index] / 2.0)
    return []


def test_the_graph_of_a_background_function_is_tagged_with_the_ranks_of_the_step(tagging):
    graph_def, _ = build(background)
    ranks = {(PS, "w2"): 0, (PS, "w0"): 7, (PS, "w1"): 8}
    changed = copy(graph_def)
    ranked = pushes.tag_pushes(GraphView(changed), Options(**tagging, partition_bytes=8192), ranks)
    # The learning rate goes with the most urgent of the updates that need it.
    assert {name: rank for name, (rank, _) in tagged(changed).items() if name != "rate:0"} in (
        {"take2:0": 1, "take0:0": 3, "take1:0": 5},
        {"take2:0": 0, "take0:0": 3, "take1:0": 5},
    )
    assert tagged(changed)["rate:0"][0] in (0, 2)
    assert {count for _, count in tagged(changed).values()} == {7}
    assert len(ranked) == 4
    assert canonical(strip_proxies(copy(changed))) == canonical(graph_def)
    whole = copy(graph_def)
    sizes = {f"take2:0@{PS}": 4096}
    plan = {"format": "tfsched-plan/1", "algorithm": "x", "transfers": []}
    plan["transfers"] = [{"name": name, "priority": 0, "partition_bytes": size} for name, size in sizes.items()]
    ranked = pushes.tag_pushes(
        GraphView(whole), Options(**tagging, partition_bytes=0), ranks, plan=Plan.from_json(json.dumps(plan))
    )
    assert [one.cut.chunks for one in ranked if one.cut] == [4]


def test_a_background_function_is_left_alone_where_it_must_be(tagging):
    graph_def, _ = build(background)
    assert pushes.tag_pushes(GraphView(graph_def), Options(), {}) == []
    assert pushes.tag_pushes(GraphView(graph_def), Options(**tagging), {}, capable={PS}) == []
    assert not [node for node in graph_def.node if node.op in (PROXY_OP, SPLIT_OP)]


def plan_of(**priorities):
    """A plan of pushes to the first parameter server."""
    return Plan("drawn", {f"{name}:0@{PS}": value for name, value in priorities.items()})


def graph_of(function):
    graph_def, _ = build(function)
    view = GraphView(place(graph_def))
    needed = [True] * len(view.nodes)
    return view, needed, find_transfers(view, needed)


def three_pushes():
    a, b, c = made("a"), made("b"), made("c")
    w0, w1, w2 = variable("w0"), variable("w1"), variable("w2")
    with tf.device(PS0):
        w0.assign_sub(a)
        w1.assign_sub(b)
        w2.assign_sub(c)
    return []


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"a": 5.0, "c": 1.0}, {"a": 5.0, "b": 1.0, "c": 1.0}),  # w1 is pulled before w2
        ({"b": 4.0}, {"a": 4.0, "b": 4.0}),  # w2 is pulled behind all that the plan knows
        ({}, {}),
    ],
)
def test_a_push_that_a_plan_does_not_know_goes_with_what_is_pulled_next(known, expected):
    view, needed, transfers = graph_of(three_pushes)
    ranks = {(PS, "w0"): 0, (PS, "w1"): 3, (PS, "w2"): 7}
    plan = pushes.filled(view, needed, transfers, ranks, plan_of(**known))
    assert plan.priorities == plan_of(**expected).priorities
    # A variable that is not pulled tells nothing.
    assert pushes.filled(view, needed, transfers, {}, plan_of(**known)).priorities == plan_of(**known).priorities


def test_a_push_is_known_by_its_variable_where_its_gradient_has_another_name():
    view, needed, _ = graph_of(three_pushes)
    traced = Plan("drawn", {f"w0<-@{PS}": 2.0, f"fused:1@{PS}": 2.0, f"b:0@{PS}": 1.0, f"w1<-@{PS}": 9.0})
    plan = pushes.named(view, needed, traced)
    assert plan.priorities == {**traced.priorities, f"a:0@{PS}": 2.0}  # b's own name wins


def test_one_variables_name_is_not_anothers():
    view, needed, _ = graph_of(three_pushes)
    plan = Plan("drawn", {f"w0<-@{TASKS[1]}": 2.0, f"other<-@{PS}": 2.0})
    assert pushes.named(view, needed, plan).priority_of(f"a:0@{PS}") is None
