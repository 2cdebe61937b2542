"""The rewrite as a pure function: what it inserts, what it leaves alone, and that values do not change."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import tensorflow as tf
from graphs import PS0, PS1, TASKS, WORKER, canonical, copy, random_graph, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfsched._options import Options
from tfsched.grappler.reading.graph import GraphView
from tfsched.grappler.reading.transfers import PROXY_OP, find_transfers
from tfsched.grappler.rewrite import rewrite
from tfsched.grappler.sending.dags import dag_of_placed_graph
from tfsched.grappler.sending.proxies import strip_proxies
from tfsched.ordering import Plan
from tfsched.ordering.tio import tio

tf1 = tf.compat.v1
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))


def proxies(graph_def):
    return [node for node in graph_def.node if node.op == PROXY_OP]


def by_transfer(graph_def):
    return {node.attr["transfer"].s.decode(): node for node in proxies(graph_def)}


def build(function):
    with tf.Graph().as_default() as graph:
        fetches = function()
        return graph.as_graph_def(), [fetch.name for fetch in fetches]


def rewritten(graph_def, fetches, **options):
    result, report = rewrite(copy(graph_def), Options(**options), fetches)
    return (graph_def if result is None else result), report


@given(st.integers(0, 2**31), st.integers(3, 25), st.sampled_from(["tio", "layer", "random", "fifo"]))
@settings(RELAXED, max_examples=40)
def test_values_are_the_same(seed, size, ordering):
    graph_def, fetches = random_graph(seed, size)
    changed, report = rewritten(graph_def, fetches, ordering=ordering, seed=seed, credit_bytes=64)
    assert len(proxies(changed)) == report.ordered
    for before, after in zip(run(graph_def, fetches), run(changed, fetches), strict=True):
        np.testing.assert_array_equal(before, after)


@given(st.integers(0, 2**31), st.integers(3, 60))
@settings(RELAXED, max_examples=80)
def test_rewriting_twice_is_rewriting_once_and_can_be_undone(seed, size):
    graph_def, fetches = random_graph(seed, size)
    once, _ = rewritten(graph_def, fetches, ordering="tio")
    twice, _ = rewritten(once, fetches, ordering="tio")
    assert canonical(twice) == canonical(once)
    assert canonical(strip_proxies(copy(once))) == canonical(graph_def)


@given(st.integers(0, 2**31), st.integers(3, 60))
@settings(RELAXED, max_examples=80)
def test_ranks_number_the_transfers_between_two_tasks(seed, size):
    graph_def, fetches = random_graph(seed, size)
    changed, _ = rewritten(graph_def, fetches, ordering="random", seed=seed)
    groups = collections.defaultdict(list)
    for node in proxies(changed):
        groups[node.device, node.attr["receiver"].s].append(node)
    for nodes in groups.values():
        assert sorted(node.attr["rank"].i for node in nodes) == list(range(len(nodes)))
        assert {node.attr["count"].i for node in nodes} == {len(nodes)}


def chain():
    """Four reads on a parameter server, used one after the other by the worker."""
    with tf.device(PS0):
        weights = [tf1.placeholder(tf.float32, [2, 2], f"w{i}") for i in range(4)]
    with tf.device(WORKER):
        h = tf1.placeholder(tf.float32, [2, 2], "x")
        for i, weight in enumerate(weights):
            h = tf.matmul(h, weight, name=f"layer{i}")
    return [h]


def test_tio_ranks_a_chain_in_the_order_of_use():
    changed, report = rewritten(*build(chain), ordering="tio")
    assert report.ordered == 4
    assert [by_transfer(changed)[f"w{i}:0"].attr["rank"].i for i in range(4)] == [0, 1, 2, 3]
    inputs = {node.name: list(node.input) for node in changed.node}
    assert all(inputs[f"layer{i}"][1].startswith("tfsched/proxy/w") for i in range(4))
    assert {node.device for node in proxies(changed)} == {PS0}
    assert {node.attr["receiver"].s.decode() for node in proxies(changed)} == {TASKS[2]}


@pytest.mark.parametrize("more", ["", "cast", "shape first", "needs itself", "parts are cast"])
def test_tio_ranks_shards_where_their_variable_is_used(more):
    def sharded():
        with tf.device(PS0):  # ranks are those of a sender
            parts = [tf1.placeholder(tf.float32, [1, 2], f"last/part_{number}") for number in range(2)]
        with tf.device(WORKER):
            if more == "parts are cast":
                parts = [tf.cast(tf.cast(part, tf.float64), tf.float32) for part in parts]
            joined = tf.concat(parts, axis=0)
            extra = [tf.shape(joined)] if more == "shape first" else []
            if more == "cast":
                joined = tf.transpose(tf.cast(tf.cast(joined, tf.float64), tf.float32))
        (hidden,) = chain()
        with tf.device(WORKER):
            if more == "needs itself":  # what uses it waits for nothing else: there is nothing to wait for
                hidden = hidden + tf.matmul(joined, tf.transpose(joined))
            return [tf.matmul(hidden, joined, name="layer4"), *extra]

    changed, report = rewritten(*build(sharded), ordering="tio")
    ranks = {name: node.attr["rank"].i for name, node in by_transfer(changed).items()}
    assert report.ordered == 6
    shards = {rank for name, rank in ranks.items() if "part_" in name}
    whole = [ranks[f"w{number}:0"] for number in range(4)]
    assert whole == sorted(whole)
    if more == "needs itself":
        assert max(shards) < whole[1]
    else:
        assert min(shards) > whole[-1]


def test_two_sharded_variables_that_are_used_together_make_no_cycle():
    def crossed():
        with tf.device(PS0):
            parts = [[tf1.placeholder(tf.float32, [1, 2], f"w{name}/part_{number}") for number in range(2)] for name in "ab"]
        with tf.device(WORKER):
            a, b = (tf.concat(one, axis=0) for one in parts)
            return [tf.matmul(tf.abs(a), tf.abs(b))]

    view = GraphView(build(crossed)[0])
    needed = [True] * len(view.nodes)
    dag = dag_of_placed_graph(view, needed, find_transfers(view, needed), TASKS[2])  # a cycle would be refused
    assert sorted(tio(dag).values()) == [2.0, 2.0, 4.0, 4.0]


def test_one_proxy_serves_all_consumers_of_a_task_and_local_ones_keep_their_edge():
    def function():
        with tf.device(PS0):
            w = tf1.placeholder(tf.float32, [2], "w")
            local = tf.negative(w, name="local")
        with tf.device(WORKER):
            here = [tf.abs(w, name="a"), tf.exp(w, name="b")]
        with tf.device(PS1):
            there = tf.sin(w, name="c")
        return [local, *here, there]

    changed, report = rewritten(*build(function))
    inputs = {node.name: list(node.input) for node in changed.node}
    assert report.ordered == 2  # one a receiver
    assert inputs["local"] == ["w"]
    assert inputs["a"] == inputs["b"] != inputs["c"]


def test_pruned_transfers_get_no_rank():
    graph_def, _ = build(chain)
    changed, _ = rewritten(graph_def, ["layer1:0"])
    assert set(by_transfer(changed)) == {"w0:0", "w1:0"}
    assert {node.attr["count"].i for node in proxies(changed)} == {2}


def test_what_a_fed_tensor_was_made_from_gets_no_rank():
    graph_def, fetches = build(chain)
    changed, _ = rewrite(copy(graph_def), Options(), fetches, feeds=["layer1:0"])
    assert set(by_transfer(changed)) == {"w2:0", "w3:0"}


def test_tasks_without_tfsched_get_no_proxy():
    graph_def, fetches = build(chain)
    changed, report = rewrite(copy(graph_def), Options(), fetches, capable={TASKS[1], TASKS[2]})
    assert changed is None
    assert report.unordered == {"from a task without tfsched": 4}


def unordered(function):
    graph_def, fetches = build(function)
    changed, report = rewritten(graph_def, fetches)
    return set(by_transfer(changed)), report.unordered


def test_strings_are_left_alone():
    def function():
        with tf.device(PS0):
            text = tf1.placeholder(tf.string, [2], "text")
        with tf.device(WORKER):
            return [tf.strings.length(text)]

    assert unordered(function) == (set(), {"not a flat tensor": 1})


def test_constants_are_left_alone():
    def function():
        with tf.device(PS0):
            constant = tf.constant([1.0, 2.0])
        with tf.device(WORKER):
            return [tf.abs(constant)]

    assert unordered(function) == (set(), {"a constant": 1})


def test_transfers_that_wait_for_transfers_are_left_alone():
    def function():
        with tf.device(WORKER):
            ids = tf1.placeholder(tf.int32, [3], "ids")
        with tf.device(PS0):
            table = tf1.placeholder(tf.float32, [9, 2], "table")
            rows = tf.gather(table, ids)
        with tf.device(WORKER):
            return [tf.abs(rows)]

    ordered, left = unordered(function)
    assert ordered == {"ids:0"}
    assert left == {"made from other transfers": 1}


def test_loops_and_branches_are_left_alone():
    def function():
        tf1.disable_control_flow_v2()
        with tf.device(PS0):
            w = tf1.placeholder(tf.float32, [], "w")
            go = tf1.placeholder(tf.bool, [], "go")
        with tf.device(WORKER):

            def body(i):
                with tf.device(PS0):
                    step = tf.identity(i * 2.0)
                return step + w

            looped = tf1.while_loop(lambda i: i < 9.0, body, [1.0])
        with tf.device(PS0):
            yes, no = tf1.raw_ops.Switch(data=w, pred=go)
        with tf.device(WORKER):
            merged = tf1.raw_ops.Merge(inputs=[tf.abs(yes), tf.exp(no)]).output
        return [looped, merged]

    ordered, left = unordered(function)
    assert left["in a loop or a branch"] >= 3  # both sides of the branch, and the loop's body
    assert ordered == {"w:0"}  # into the loop, once


@pytest.mark.parametrize(("policy", "is_ordered"), [("tictac", False), ("bytescheduler", True), ("p3", True)])
def test_pulls_in_a_loop_are_ordered_where_nobody_waits_for_a_missing_rank(policy, is_ordered):
    def function():
        tf1.disable_control_flow_v2()
        with tf.device(PS0):
            variable = tf1.get_variable("inside", [600], use_resource=True)
        with tf.device(WORKER):

            def body(number, value):
                with tf.device(PS0):
                    read = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=tf.float32, name="read")
                return number + 1.0, value + read

            return [tf1.while_loop(lambda number, _: number < 9.0, body, [1.0, tf.zeros([600])])[1]]

    graph_def, fetches = build(function)
    changed, report = rewritten(graph_def, fetches, policy=policy, partition_bytes=4096 if is_ordered else 0)
    assert {name for name in by_transfer(changed) if "read" in name} == ({"while/read:0"} if is_ordered else set())
    assert bool(report.unordered.get("in a loop or a branch")) is not is_ordered
    again, _ = rewritten(changed, fetches, policy=policy)
    assert canonical(again) == canonical(changed)


def test_reference_variables_are_sent_as_snapshots():
    def function():
        with tf.device(PS0):
            reference = tf1.get_variable("reference", [2], use_resource=False)
            resource = tf1.get_variable("resource", [2], use_resource=True)
            read = resource.read_value()
            checked = tf.debugging.check_numerics(reference, "", name="checked")
        with tf.device(WORKER):
            return [tf.abs(reference), tf.abs(read), tf.abs(checked)]

    graph_def, fetches = build(function)
    changed, _ = rewritten(graph_def, fetches)
    copies = {name: node.attr["copy"].b for name, node in by_transfer(changed).items()}
    assert copies.pop("reference/read:0") is True
    assert copies.pop("checked:0") is True  # the op puts out its input's buffer
    assert list(copies.values()) == [False]


def test_a_plan_wins_over_the_ordering_and_the_rest_follows():
    plan = Plan("mine", {f"w3:0@{TASKS[2]}": 1.0, f"w1:0@{TASKS[2]}": 2.0}, {})
    import json

    changed, _ = rewritten(*build(chain), ordering="tio", plan=json.dumps(plan.to_json()))
    ranks = {name: node.attr["rank"].i for name, node in by_transfer(changed).items()}
    assert ranks == {"w3:0": 0, "w1:0": 1, "w0:0": 2, "w2:0": 3}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ordering": "nope"}, ["nope", "tio"]),
        ({"ordering": "tao"}, ["tao", "trace_steps"]),
        ({"plan": "/no/such/plan.json"}, ["/no/such/plan.json"]),
        ({"plugin": "/no/such/plugin.py", "ordering": "mine"}, ["/no/such/plugin.py"]),
    ],
)
def test_mistakes_are_one_sentence(options, words):
    with pytest.raises(ValueError) as caught:
        rewritten(*build(chain), **options)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


def test_ordering_none_takes_proxies_out_again():
    graph_def, fetches = build(chain)
    changed, _ = rewritten(graph_def, fetches)
    assert proxies(changed)
    back, report = rewritten(changed, fetches, ordering="none")
    assert canonical(back) == canonical(graph_def)
    assert report.ordered == 0


def test_graphs_of_one_task_are_not_touched():
    def function():
        return [tf1.placeholder(tf.float32, [1], "x") + 1.0]

    graph_def, fetches = build(function)
    assert rewrite(copy(graph_def), Options(), fetches)[0] is None
