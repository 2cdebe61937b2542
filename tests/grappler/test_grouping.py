"""Groups of a plan as one tensor: which transfers are joined, that no value changes, and that nothing waits for itself."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf
from graphs import PS0, PS1, TASKS, WORKER, canonical, copy, plain_config, target
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfsched._options import Options
from tfsched.grappler.reading.graph import GraphView
from tfsched.grappler.reading.transfers import GROUP_OP, PROXY_OP, UNGROUP_OP, find_transfers
from tfsched.grappler.rewrite import explain, rewrite
from tfsched.grappler.sending.grouping import grouped_bytes, members_of
from tfsched.grappler.sending.proxies import strip_proxies
from tfsched.ops import library
from tfsched.ordering import Plan

tf1 = tf.compat.v1
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))


def joins(graph_def):
    return [node for node in graph_def.node if node.op == GROUP_OP]


def transfer_names(graph_def):
    view = GraphView(graph_def)
    return list(dict.fromkeys(one.name(view) for one in find_transfers(view, [True] * len(view.nodes), classify=False)))


def plan_of(groups, pieces=0):
    names = [name for group in groups for name in group]
    sizes = dict.fromkeys(names, pieces) if pieces else {}
    return json.dumps(
        Plan("mine", {name: float(place) for place, name in enumerate(names)}, {}, {}, sizes, groups).to_json()
    )


def rewritten(graph_def, fetches, groups, pieces=0, feeds=(), capable=None, **options):
    options = Options(**{"policy": "bytescheduler", "plan": plan_of(groups, pieces), **options})
    result, report = rewrite(copy(graph_def), options, fetches, feeds=feeds, capable=capable)
    return (graph_def if result is None else result), report


def training_graph(seed, count):
    """(GraphDef, initializer, fetches): variables of several kinds, gradients of which some are made from updated ones."""
    rng = np.random.default_rng(seed)
    with tf.Graph().as_default() as graph:
        variables = []
        for index in range(count):
            shape = [int(one) for one in rng.choice([1, 3, 17, 40], int(rng.integers(0, 3)))]
            dtype = [tf.float32, tf.float64, tf.float16][int(rng.integers(3))]
            with tf.device(rng.choice([PS0, PS1])):
                value = rng.standard_normal(shape).astype(dtype.as_numpy_dtype)
                resource = bool(rng.integers(2))
                # The servers outlive the graph: another one must not find this variable.
                name = f"v{seed}_{count}_{index}"
                variables.append(tf1.get_variable(name, initializer=value, use_resource=resource))
        with tf.device(WORKER):
            pulled = [tf.cast(variable, tf.float64) for variable in variables]
            loss = tf.add_n([tf.reduce_sum(tf.sin(value)) for value in pulled])
        updates = []
        for variable, value in zip(variables, pulled, strict=True):
            before = [updates[-1]] if updates and rng.random() < 0.2 else []
            with tf.device(WORKER), tf.control_dependencies(before):
                gradient = tf.cast(tf.cos(value) * loss, variable.dtype.base_dtype)
            with tf.device(variable.device):
                updates.append(variable.assign_sub(gradient * tf.cast(0.25, gradient.dtype), read_value=False))
        with tf.control_dependencies(updates):
            done = tf.no_op("done")
        init = tf1.global_variables_initializer()
        values = [variable.read_value() if hasattr(variable, "read_value") else variable for variable in variables]
        with tf.device(WORKER):
            after = [tf.identity(value, f"after{index}") for index, value in enumerate(values)]
        return graph.as_graph_def(), init.name, [loss.name, done.name], [value.name for value in after]


def trained(graph_def, init, fetches, after):
    """What two steps of the graph compute and leave in the variables."""
    with tf.Graph().as_default() as graph:
        tf1.import_graph_def(graph_def, name="")
        with tf1.Session(target(), graph=graph, config=plain_config()) as session:
            session.run(init)
            loss = [session.run(fetches)[0] for _ in range(2)]
            return loss, session.run(after)


def drawn_groups(seed, names):
    rng = np.random.default_rng(seed)
    names = list(rng.permutation(names))
    groups = []
    while names:
        size = int(rng.integers(1, 6))
        groups.append(tuple(map(str, names[:size])))
        names = names[size:]
    return groups


@given(st.integers(0, 2**31), st.integers(1, 8), st.sampled_from([0, 4096]), st.sampled_from(["bytescheduler", "tictac"]))
@settings(RELAXED, max_examples=40)
def test_values_are_the_same(seed, count, pieces, policy):
    graph_def, init, fetches, after = training_graph(seed, count)
    groups = drawn_groups(seed, transfer_names(graph_def))
    # All of it at once: a session's step, a read of all variables and the initializer are parts of one graph here.
    changed, _ = rewritten(graph_def, [*fetches, *after, init], groups, pieces, policy=policy, credit_bytes=1)
    before, now = (trained(one, init, fetches, after) for one in (graph_def, changed))
    assert before[0] == now[0]
    for one, other in zip(before[1], now[1], strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@given(st.integers(0, 2**31), st.integers(1, 16), st.sampled_from([0, 4096]))
@settings(RELAXED, max_examples=80)
def test_twice_is_once_and_undoing_gives_the_graph_back(seed, count, pieces):
    graph_def, _, fetches, after = training_graph(seed, count)
    groups = drawn_groups(seed, transfer_names(graph_def))
    once, report = rewritten(graph_def, [*fetches, *after], groups, pieces)
    assert len(joins(once)) == report.groups
    assert sum(len(node.attr["T"].list.type) for node in joins(once)) == report.members
    again, _ = rewritten(once, [*fetches, *after], groups, pieces)
    assert canonical(again) == canonical(once)
    assert canonical(strip_proxies(copy(once))) == canonical(graph_def)
    grouped = {name.partition("@")[0]: place for place, group in enumerate(groups) for name in group}
    for node in joins(once):
        assert len({grouped[member] for member, _ in members_of(once)[f"{node.name}:0"]}) == 1
        assert node.attr["_output_shapes"].list.shape[0].dim[0].size % 64 == 0


def layers(count=3, size=5):
    """(GraphDef, fetches) of a step that trains some layers of one parameter server."""
    with tf.Graph().as_default() as graph:
        with tf.device(PS0):
            weights = [tf1.get_variable(f"w{index}", [size, size], use_resource=True) for index in range(count)]
            reads = [weight.read_value() for weight in weights]
        with tf.device(WORKER):
            h = tf1.placeholder(tf.float32, [size, size], "x")
            for index, read in enumerate(reads):
                h = tf.matmul(h, read, name=f"layer{index}")
            loss = tf.reduce_sum(h, name="loss")
            gradients = tf.gradients(loss, reads)
        with tf.device(PS0):
            updates = [weight.assign_sub(one, read_value=False) for weight, one in zip(weights, gradients, strict=True)]
        return graph.as_graph_def(), [loss.name, *(update.name for update in updates)]


def names_to(graph_def, receiver):
    return tuple(name for name in transfer_names(graph_def) if name.endswith(receiver))


def test_pulls_and_pushes_leave_as_the_plan_groups_them():
    graph_def, fetches = layers()
    pulls, pushes = names_to(graph_def, TASKS[2]), names_to(graph_def, TASKS[0])
    assert len(pulls) == len(pushes) == 3
    changed, report = rewritten(graph_def, fetches, [pulls[:2], pushes])
    assert (report.groups, report.members, report.alone) == (2, 5, {})
    assert "2 of them groups of the plan with 5 transfers" in explain(report)
    assert sorted(len(members) for members in members_of(changed).values()) == [2, 3]
    devices = {node.device for node in joins(changed)}
    assert devices == {PS0, WORKER}
    apart = {node.device for node in changed.node if node.op == UNGROUP_OP}
    assert apart == {PS0, WORKER}
    size = grouped_bytes([(2, 100)] * 3)
    assert {node.attr["_output_shapes"].list.shape[0].dim[0].size for node in joins(changed)} == {
        size,
        grouped_bytes([(2, 100)] * 2),
    }


@pytest.mark.parametrize("first, second", [(0, 2), (1, 2), (2, 3), (0, 3)])
def test_of_equal_priorities_a_group_goes_in_the_place_of_its_first_member(first, second):
    graph_def, fetches = layers(4)
    for receiver in (TASKS[2], TASKS[0]):
        names = names_to(graph_def, receiver)
        group = (names[first], names[second])
        plan = json.dumps(Plan("mine", dict.fromkeys(names, 0.0), groups=(group,)).to_json())
        changed, _ = rewrite(copy(graph_def), Options(policy="bytescheduler", plan=plan), fetches)
        ranks = {}
        for node in changed.node:
            if node.op == PROXY_OP and node.input[0] in {one.rpartition("@")[0].removesuffix(":0") for one in names}:
                ranks[node.input[0]] = node.attr["rank"].i
            elif node.op == PROXY_OP and node.input[0] == joins(changed)[0].name:
                ranks["joined"] = node.attr["rank"].i
        alone = [one.rpartition("@")[0].removesuffix(":0") for one in names if one not in group]
        expected = [*alone[:first], "joined", *alone[first:]]
        assert sorted(ranks, key=ranks.get) == expected


def test_a_plan_of_one_worker_serves_another():
    graph_def, fetches = layers()
    pulls = [name.replace("task:0", "task:7") for name in names_to(graph_def, TASKS[2])]
    assert rewritten(graph_def, fetches, [tuple(pulls)])[1].members == 3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"capable": {TASKS[0]}}, "between tasks of which one is without tfsched"),
        ({"policy": "tictac"}, "neither a variable's value nor an ordered push"),
        ({"feeds": None}, "fed"),
    ],
)
def test_what_is_not_joined_says_why(change, reason):
    graph_def, fetches = layers()
    pulls, pushes = names_to(graph_def, TASKS[2]), names_to(graph_def, TASKS[0])
    if "feeds" in change:
        change = {"feeds": [pulls[0].partition("@")[0]]}
    _, report = rewritten(graph_def, fetches, [pulls, pushes], **change)
    assert reason in report.alone
    assert f"{report.alone[reason]} {reason}" in explain(report)


def test_what_is_made_from_a_push_is_not_joined_with_it():
    """The second gradient waits for the first variable's update."""
    with tf.Graph().as_default() as graph:
        with tf.device(PS0):
            first, second = (tf1.get_variable(f"v{index}", [4], use_resource=True) for index in range(2))
        with tf.device(WORKER):
            one = tf.sin(first, name="one")
        with tf.device(PS0):
            update = first.assign_sub(one, read_value=False)
        with tf.device(WORKER), tf.control_dependencies([update]):
            two = tf.cos(second, name="two")
        with tf.device(PS0):
            last = second.assign_sub(two, read_value=False)
        graph_def, fetches = graph.as_graph_def(), [last.name]
    pushes = names_to(graph_def, TASKS[0])
    assert len(pushes) == 2
    _, report = rewritten(graph_def, fetches, [pushes])
    assert (report.groups, report.alone) == (0, {"made from other pushes": 1})


def test_what_may_never_come_is_not_joined():
    with tf.Graph().as_default() as graph:
        with tf.device(PS0):
            always, now_and_then = (tf1.get_variable(f"v{index}", [4], use_resource=True) for index in range(2))
            go = tf1.placeholder(tf.bool, [], "go")
            _, taken = tf1.raw_ops.Switch(data=1.0, pred=go)
            with tf.control_dependencies([taken]):
                read = tf.raw_ops.ReadVariableOp(resource=now_and_then.handle, dtype=tf.float32)
            value = always.read_value()
        with tf.device(WORKER):
            fetched = [tf.abs(value), tf.abs(read)]
        graph_def, fetches = graph.as_graph_def(), [one.name for one in fetched]
    _, report = rewritten(graph_def, fetches, [tuple(transfer_names(graph_def))])
    assert report.groups == 0 and report.alone == {"in a loop or a branch": 1}


TYPES = [tf.float32, tf.bool, tf.half, tf.complex128, tf.int8, tf.bfloat16, tf.int64, tf.float64, tf.uint16]


@given(st.integers(0, 2**31), st.integers(1, 6))
@settings(RELAXED, max_examples=60)
def test_the_ops_are_inverse(seed, count):
    rng = np.random.default_rng(seed)
    ops = library.load()
    values = []
    for _ in range(count):
        shape = [int(one) for one in rng.choice([0, 1, 3, 31, 64], int(rng.integers(0, 4)), p=[0.1] + [0.225] * 4)]
        values.append(tf.cast(tf.constant(rng.integers(0, 100, shape)), TYPES[int(rng.integers(len(TYPES)))]))
    joined = ops.tfsched_group(inputs=values)
    sizes = [(value.shape.rank, value.dtype.size * int(np.prod(value.shape))) for value in values]
    assert joined.shape == [grouped_bytes(sizes)]
    apart = ops.tfsched_ungroup(joined=joined, T=[value.dtype for value in values], shapes=[value.shape for value in values])
    for before, after in zip(values, apart, strict=True):
        assert before.dtype == after.dtype and before.shape == after.shape
        np.testing.assert_array_equal(before.numpy(), after.numpy())


@given(st.integers(0, 2**31))
@settings(RELAXED, max_examples=100)
def test_bytes_that_no_join_made_are_an_error(seed):
    rng = np.random.default_rng(seed)
    ops = library.load()
    joined = ops.tfsched_group(inputs=[tf.ones([3, 5]), tf.ones([7], tf.int64)]).numpy()
    kind = int(rng.integers(4))
    if kind == 0:
        joined = joined[: int(rng.integers(len(joined)))]
    elif kind == 1:
        joined = np.concatenate([joined, np.zeros(int(rng.integers(1, 200)), np.uint8)])
    elif kind == 2:  # a rank or a dimension
        number = rng.choice([-1, 2**62, 255, 10**6, 2**40])
        joined[8 * int(rng.integers(5)) :][:8] = np.frombuffer(np.int64(number).tobytes(), np.uint8)
    else:
        joined = rng.integers(0, 256, int(rng.integers(0, 300))).astype(np.uint8)
    with pytest.raises(tf.errors.InvalidArgumentError, match="no TfschedGroup of 2 such tensors has made"):
        ops.tfsched_ungroup(joined=joined, T=[tf.float32, tf.int64], shapes=[[3, 5], [7]])
