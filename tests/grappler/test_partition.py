"""Cutting transfers into chunks: which are cut and where, ranks that stay exact, and values that do not change."""

from __future__ import annotations

import collections
import json
import math

import numpy as np
import pytest
import tensorflow as tf
from graphs import PS0, PS1, TASKS, WORKER, canonical, copy, run
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tensorflow.core.framework import types_pb2

from tfsched._options import Options
from tfsched._rules import BLOCK_BYTES, MAX_CHUNKS, MIN_PARTITION_BYTES, chunk_bytes, chunks_of
from tfsched.errors import TfschedError
from tfsched.grappler.reading.transfers import MERGE_OP, PROXY_OP, SPLIT_OP
from tfsched.grappler.rewrite import explain, rewrite
from tfsched.grappler.sending.proxies import strip_proxies
from tfsched.ops import library
from tfsched.ordering import Plan

tf1 = tf.compat.v1
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))
TYPES = [tf.float32, tf.bool, tf.half, tf.complex128, tf.int8, tf.bfloat16, tf.int64, tf.float64, tf.uint16]


def nodes(graph_def, *ops):
    return [node for node in graph_def.node if node.op in ops]


def build(function):
    with tf.Graph().as_default() as graph:
        fetches = function()
        return graph.as_graph_def(), [fetch.name for fetch in fetches]


def rewritten(graph_def, fetches, feeds=(), capable=None, **options):
    result, report = rewrite(copy(graph_def), Options(**options), fetches, feeds=feeds, capable=capable)
    return (graph_def if result is None else result), report


def given_value(rng, shape, dtype, name):
    value = rng.integers(0, 100, shape)
    with np.errstate(all="ignore"):
        return tf1.placeholder_with_default(tf.cast(tf.constant(value), dtype), shape, name)


def sized_graph(seed, size):
    """Tensors of all types and of sizes around those of chunks, used by several ops on several tasks, some after others."""
    rng = np.random.default_rng(seed)
    tasks = [PS0, PS1, WORKER]
    with tf.Graph().as_default() as graph:
        fetched = []
        for index in range(size):
            shape = [int(one) for one in rng.choice([0, 1, 3, 31, 64, 127], int(rng.integers(0, 4)), p=[0.02] + [0.196] * 5)]
            dtype = TYPES[int(rng.integers(len(TYPES)))]
            with tf.device(rng.choice(tasks)):
                value = given_value(rng, shape, dtype, f"in{index}")
            for number in range(int(rng.integers(1, 4))):
                before = [fetched[int(rng.integers(len(fetched)))].op] if fetched and rng.random() < 0.3 else []
                with tf.device(rng.choice(tasks)), tf.control_dependencies(before):
                    kind = int(rng.integers(3))
                    if kind == 0:
                        result = tf.identity(value, f"out{index}_{number}")
                    elif kind == 1:
                        result = tf.reshape(value, [-1], f"out{index}_{number}")
                    else:
                        result = tf.stack([value, value], name=f"out{index}_{number}")
                fetched.append(result)
            if rng.random() < 0.3:
                fetched.append(value)
        return graph.as_graph_def(), [one.name for one in fetched]


@given(st.integers(0, 2**31), st.integers(1, 8), st.sampled_from([4096, 5000, 65536, 10**9]))
@settings(RELAXED, max_examples=40)
def test_values_are_the_same(seed, size, partition_bytes):
    graph_def, fetches = sized_graph(seed, size)
    changed, report = rewritten(graph_def, fetches, credit_bytes=1, partition_bytes=partition_bytes)
    assert len(nodes(changed, SPLIT_OP)) == len(nodes(changed, MERGE_OP)) == report.cut
    assert len(nodes(changed, PROXY_OP)) + report.cut == report.ordered
    for before, after in zip(run(graph_def, fetches), run(changed, fetches), strict=True):
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)


@given(st.integers(0, 2**31), st.integers(1, 20), st.sampled_from([4096, 5000, 65536, 10**9]))
@settings(RELAXED, max_examples=80)
def test_twice_is_once_undoing_gives_the_graph_back_and_ranks_count_chunks(seed, size, partition_bytes):
    graph_def, fetches = sized_graph(seed, size)
    once, report = rewritten(graph_def, fetches, ordering="random", seed=seed, partition_bytes=partition_bytes)
    again, _ = rewritten(once, fetches, ordering="random", seed=seed, partition_bytes=partition_bytes)
    assert canonical(again) == canonical(once)
    assert canonical(strip_proxies(copy(once))) == canonical(graph_def)
    groups = collections.defaultdict(list)
    chunks = 0
    for node in nodes(once, PROXY_OP, SPLIT_OP):
        number = node.attr["N"].i if node.op == SPLIT_OP else 1
        chunks += number if node.op == SPLIT_OP else 0
        rank = node.attr["rank"].i
        groups[node.device, node.attr["receiver"].s].append((range(rank, rank + number), node.attr["count"].i))
    assert chunks == report.chunks
    for group in groups.values():
        ranks = sorted(rank for own, _ in group for rank in own)
        assert ranks == list(range(len(ranks)))
        assert {count for _, count in group} == {len(ranks)}


@given(st.integers(1, 10**10), st.integers(MIN_PARTITION_BYTES, 10**8))
@settings(RELAXED, max_examples=300)
def test_chunks_fit_and_are_never_copied_by_grpc(size_bytes, partition_bytes):
    sizes = chunk_bytes(size_bytes, partition_bytes)
    assert sum(sizes) == size_bytes and len(sizes) == chunks_of(size_bytes, partition_bytes)
    if len(sizes) < MAX_CHUNKS:
        assert max(sizes) <= partition_bytes
    else:
        assert size_bytes > 63 * MAX_CHUNKS * partition_bytes // 64 - 64 * MAX_CHUNKS
    if len(sizes) > 1:
        assert min(sizes) > 1024


def parts(input, number, shape, **attrs):
    ops = library.load()
    wanted = {"transfer": "t:0", "receiver": TASKS[2], "policy": "fifo", "rank": 0, "count": number, "credit_bytes": 0}
    return ops.tfsched_split(input=input, N=number, shape=shape, **{**wanted, **attrs})


def test_the_split_cuts_at_the_blocks_that_the_rewrite_counts():
    """Half of three blocks is one block, rounded down: 64 bytes of 192, where blocks of 32 or 16 bytes would give 96."""
    with tf.Graph().as_default(), tf1.Session() as session:
        size = 3 * BLOCK_BYTES
        pieces = session.run(parts(tf.zeros([size], tf.int8), 2, [size]))
    assert [len(piece) for piece in pieces] == [BLOCK_BYTES, 2 * BLOCK_BYTES]


@pytest.mark.parametrize(("size", "partition"), [(4096, 4096), (4097, 4096), (20_000, 4100), (99_999, 5000)])
def test_the_split_cuts_where_plans_and_the_simulator_cut(size, partition):
    """So does cc/ops/transfers/chunks.h, for which the rewrite says the number of chunks only."""
    sizes = chunk_bytes(size, partition)
    with tf.Graph().as_default(), tf1.Session() as session:
        pieces = session.run(parts(tf.zeros([size], tf.int8), len(sizes), [size]))
    assert [len(piece) for piece in pieces] == sizes


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("number", [1, 2, 7, 19])
def test_chunks_are_equal_aligned_and_complete(dtype, number, copied):
    with tf.Graph().as_default(), tf1.Session() as session:
        value = given_value(np.random.default_rng(number), [37, 41], dtype, "value")
        chunks = parts(value, number, [37, 41], copy=copied)
        merged = library.load().tfsched_merge(chunks=chunks, shape=[37, 41])
        pieces, got, wanted = session.run([chunks, merged, value])
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)
    assert merged.shape == [37, 41]
    sizes = [piece.nbytes for piece in pieces]
    assert sum(sizes) == wanted.nbytes
    if number > 1:
        assert all(size % BLOCK_BYTES == 0 for size in sizes[:-1])
        assert max(sizes) - min(sizes) < 2 * BLOCK_BYTES
        assert min(sizes) > 0
        np.testing.assert_array_equal(np.concatenate(pieces), wanted.reshape(-1))


@pytest.mark.parametrize("shape", [[], [0], [5], [3, 0], [16], [64], [65, 2], [2, 65], [1000]])
def test_a_tensor_of_another_shape_than_stated_arrives_as_it_is(shape):
    with tf.Graph().as_default(), tf1.Session() as session:
        value = tf1.placeholder(tf.float32, None)
        merged = library.load().tfsched_merge(chunks=parts(value, 4, [65, 2]), shape=[65, 2])
        wanted = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
        got = session.run(merged, {value: wanted})
    assert got.shape == wanted.shape
    np.testing.assert_array_equal(got, wanted)


def test_strings_pass_whole():
    with tf.Graph().as_default(), tf1.Session() as session:
        chunks = parts(tf.constant(["a", "b", "c"]), 2, [3])
        assert session.run(library.load().tfsched_merge(chunks=chunks, shape=[3])).tolist() == [b"a", b"b", b"c"]


def test_a_merge_of_foreign_chunks_says_what_is_wrong():
    with tf.Graph().as_default(), tf1.Session() as session:
        merged = library.load().tfsched_merge(chunks=[tf.zeros([3]), tf.zeros([4])], shape=[8])
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"chunks of 7 elements for a tensor of shape \[8\]"):
            session.run(merged)


def layers():
    """Three matrices on a parameter server, 16, 64 and 4 kB, used in this order by the worker, the second on two devices."""
    with tf.device(PS0):
        weights = [tf1.get_variable(f"w{i}", [n, n], use_resource=True) for i, n in enumerate([64, 128, 32])]
        reads = [weight.read_value() for weight in weights]
    with tf.device(WORKER):
        first = tf.reduce_sum(reads[0])
    with tf.device(WORKER):
        second = tf.reduce_sum(reads[1]) + first
        again = tf.identity(reads[1])
    with tf.device(WORKER.replace("CPU:0", "CPU:1")):
        elsewhere = tf.identity(reads[1])
    with tf.device(WORKER):
        return [tf.reduce_sum(reads[2]) + second, again, elsewhere]


def test_chunks_follow_one_another_and_one_merge_serves_a_device():
    changed, report = rewritten(*build(layers), partition_bytes=16_384)
    splits = {(node.input[0], node.attr["rank"].i): node.attr["N"].i for node in nodes(changed, SPLIT_OP)}
    assert report.cut == len(splits) == 2
    assert set(splits.values()) == {4}
    whole = {node.attr["transfer"].s.decode(): node.attr["rank"].i for node in nodes(changed, PROXY_OP)}
    assert sorted(whole.values()) in ([0, 1], [0, 9])
    assert {node.attr["count"].i for node in nodes(changed, SPLIT_OP, PROXY_OP)} == {10}
    merges = nodes(changed, MERGE_OP)
    assert sorted(node.device for node in merges) == [WORKER, WORKER.replace("CPU:0", "CPU:1")]
    used = {node.name: list(node.input) for node in changed.node if any("tfsched/merge" in one for one in node.input)}
    assert len(used) == 3
    assert len({one for inputs in used.values() for one in inputs if "merge" in one}) == 2
    assert report.whole == {}
    assert "2 of them in 8 chunks of at most 16,384 bytes" in explain(report)


def test_a_merge_whose_chunks_were_replaced_stays():
    """Constant folding, between the two times that Grappler runs the pass, may know a chunk."""
    graph_def, fetches = build(layers)
    changed, _ = rewritten(graph_def, fetches, partition_bytes=16_384)
    merge = nodes(changed, MERGE_OP)[0]
    folded = changed.node.add(name="folded", op="Const", device=merge.device)
    folded.attr["dtype"].type = types_pb2.DT_FLOAT
    folded.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.zeros([4096], np.float32)))
    split = merge.input[0]
    merge.input[0] = folded.name
    bare = strip_proxies(copy(changed))
    assert [node.name for node in nodes(bare, MERGE_OP)] == [merge.name]
    assert [node.name for node in nodes(bare, SPLIT_OP)] == [split]
    assert not nodes(bare, PROXY_OP)


def test_a_merge_for_another_kind_of_device_stands_on_the_cpu_beside_it():
    graph_def, fetches = build(layers)
    for node in graph_def.node:
        node.device = node.device.replace("task:0/device:CPU:1", "task:0/device:GPU:0")
    changed, _ = rewritten(graph_def, fetches, partition_bytes=16_384)
    assert [node.device for node in nodes(changed, MERGE_OP)] == [WORKER] * 2


def test_sizes_of_variables_and_gradients_are_known():
    def function():
        with tf.device(PS0):
            resource = tf1.get_variable("resource", [64, 64], use_resource=True)
            reference = tf1.get_variable("reference", [64, 64], use_resource=False)
            read = tf.cast(resource.read_value(), tf.float64)
        with tf.device(WORKER):
            values = [tf1.placeholder(tf.float32, None, f"gradient{number}") for number in range(5)]
        with tf.device(PS0):
            total = tf.add_n(values[:2]) / 2.0
            updates = [
                tf.raw_ops.ResourceApplyGradientDescent(var=resource.handle, alpha=0.1, delta=total),
                tf.raw_ops.AssignSubVariableOp(resource=resource.handle, value=values[2]),
                tf1.assign_add(reference, values[3]).op,
                tf.raw_ops.AssignVariableOp(resource=resource.handle, value=values[4]),
            ]
        with tf.device(WORKER):
            return [tf.reduce_sum(read), tf.reduce_sum(reference), *(one for one in updates)]

    changed, report = rewritten(*build(function), partition_bytes=4096)
    cut = {node.attr["transfer"].s.decode(): node.attr["N"].i for node in nodes(changed, SPLIT_OP)}
    assert cut == {"Cast:0": 8, "reference/read:0": 4, **{f"gradient{number}:0": 4 for number in range(4)}}
    assert {node.attr["copy"].b for node in nodes(changed, SPLIT_OP) if "reference" in node.input[0]} == {True}
    # What is assigned gives the variable its size, not the reverse.
    assert report.whole == {"of unknown size": 1}


def test_what_cannot_be_cut_leaves_whole_and_is_counted():
    def function():
        with tf.device(PS0):
            unknown = tf1.placeholder(tf.float32, [None, 64], "unknown")
            fed = tf1.placeholder(tf.float32, [64, 64], "fed")
            odd = tf1.placeholder(tf.dtypes.as_dtype(types_pb2.DT_INT4), [64, 640], "odd")
            small = tf1.placeholder(tf.float32, [4], "small")
        with tf.device(WORKER):
            return [tf.identity(one) for one in (unknown, fed, odd, small)]

    changed, report = rewritten(*build(function), feeds=["fed:0"], partition_bytes=4096)
    assert report.whole == {"of unknown size": 1, "fed": 1, "of a type that is not cut": 1}
    assert report.cut == 0
    assert report.ordered == len(nodes(changed, PROXY_OP)) == 4
    assert "whole: 1 fed, 1 of a type that is not cut, 1 of unknown size" in explain(report)


def test_tasks_without_tfsched_get_no_chunks():
    changed, report = rewritten(*build(layers), capable={TASKS[0]}, partition_bytes=4096)
    assert report.whole == {"to a task without tfsched": 3}
    assert not nodes(changed, SPLIT_OP, MERGE_OP)
    changed, report = rewritten(*build(layers), capable={TASKS[2]}, partition_bytes=4096)
    assert not nodes(changed, SPLIT_OP, MERGE_OP)


def test_a_plans_sizes_win():
    graph_def, fetches = build(layers)
    _, report = rewritten(graph_def, fetches, partition_bytes=4096)
    names = {node.input[0] for node in nodes(rewritten(graph_def, fetches, partition_bytes=4096)[0], SPLIT_OP)}
    assert report.chunks == 4 + 16 + 16
    first, second = sorted(f"{name}:0@{TASKS[2]}" for name in names)
    plan = Plan("mine", {first: 1.0, second: 2.0}, partition_bytes={first: 8192, second: 0})
    changed, report = rewritten(graph_def, fetches, partition_bytes=4096, plan=json.dumps(plan.to_json()))
    assert [node.attr["N"].i for node in nodes(changed, SPLIT_OP)] == [2]
    assert rewritten(graph_def, fetches, plan=json.dumps(plan.to_json()))[1].chunks == 2


def drawn_plan(graph_def, fetches, seed):
    """A plan that cuts what can be cut into random pieces with random priorities."""
    rng = np.random.default_rng(seed)
    cut, _ = rewritten(graph_def, fetches, partition_bytes=MIN_PARTITION_BYTES)
    priorities, pieces = {}, {}
    for node in nodes(cut, PROXY_OP, SPLIT_OP):
        name = f"{node.attr['transfer'].s.decode()}@{node.attr['receiver'].s.decode()}"
        priorities[name] = float(rng.integers(10))
        if node.op != SPLIT_OP:
            continue
        shape = [dim.size for dim in node.attr["shape"].shape.dim]
        left, sizes = math.prod(shape) * tf.as_dtype(node.attr["T"].type).size, []
        while left >= 2 * MIN_PARTITION_BYTES:
            size = int(rng.integers(MIN_PARTITION_BYTES, left - MIN_PARTITION_BYTES + 1)) // BLOCK_BYTES * BLOCK_BYTES
            sizes.append(size)
            left -= size
        if sizes:
            pieces[name] = [(size, float(rng.integers(10))) for size in [*sizes, left]]
    return Plan("drawn", priorities, pieces=pieces)


@given(st.integers(0, 2**31), st.integers(1, 12))
@example(156, 11)  # all pieces of a transfer have one priority, and the transfer another one
@settings(RELAXED, max_examples=60)
def test_pieces_of_a_plan_leave_as_planned_and_values_are_the_same(seed, size):
    graph_def, fetches = sized_graph(seed, size)
    plan = drawn_plan(graph_def, fetches, seed)
    options = {"plan": json.dumps(plan.to_json()), "policy": "bytescheduler", "partition_bytes": 4096}
    changed, _ = rewritten(graph_def, fetches, **options)
    for before, after in zip(run(graph_def, fetches), run(copy(changed), fetches), strict=True):
        np.testing.assert_array_equal(before, after)
    assert canonical(rewritten(changed, fetches, **options)[0]) == canonical(changed)
    assert canonical(strip_proxies(copy(changed))) == canonical(graph_def)
    groups = collections.defaultdict(list)  # rank, priority
    for node in nodes(changed, PROXY_OP, SPLIT_OP):
        name = f"{node.attr['transfer'].s.decode()}@{node.attr['receiver'].s.decode()}"
        chunks = node.attr["N"].i if node.op == SPLIT_OP else 1
        ranks = list(node.attr["ranks"].list.i) or [node.attr["rank"].i + chunk for chunk in range(chunks)]
        own = plan.pieces_of(name)
        if own:
            assert list(node.attr["sizes"].list.i) == [one for one, _ in own]
        priorities = [one for _, one in own] or [plan.priorities[name]] * chunks
        groups[node.device, node.attr["receiver"].s] += zip(ranks, priorities, strict=True)
    for group in groups.values():
        assert sorted(rank for rank, _ in group) == list(range(len(group)))
        by_rank = [priority for _, priority in sorted(group)]
        assert by_rank == sorted(by_rank)


def test_pieces_planned_for_another_size_leave_as_the_option_says():
    graph_def, fetches = build(layers)
    names = [node.input[0] for node in nodes(rewritten(graph_def, fetches, partition_bytes=4096)[0], SPLIT_OP)]
    pieces = {f"{name}:0@{TASKS[2]}": [(4096, 0.0), (4160, 1.0)] for name in names}
    text = json.dumps(Plan("mine", dict.fromkeys(pieces, 0.0), pieces=pieces).to_json())
    assert rewritten(graph_def, fetches, partition_bytes=4096, plan=text)[1].chunks == 4 + 16 + 16
    assert rewritten(graph_def, fetches, plan=text)[1].chunks == 0


@pytest.mark.parametrize("sizes", [[64, 64], [64, 128, 64], [100, 92], [0, 192], [-64, 256], [192, 64], [128]])
def test_sizes_that_do_not_fit_leave_the_tensor_whole(sizes):
    with tf.Graph().as_default(), tf1.Session() as session:
        pieces = session.run(parts(tf.zeros([192], tf.int8), 2, [192], sizes=sizes))
    assert [len(piece) for piece in pieces] == [192, 0]


def test_chunks_of_given_sizes():
    with tf.Graph().as_default(), tf1.Session() as session:
        given_sizes = [128, 64, 30]
        pieces = session.run(parts(tf.cast(tf.range(111), tf.half), 3, [111], sizes=given_sizes, ranks=[2, 0, 1]))
    assert [piece.nbytes for piece in pieces] == given_sizes
    np.testing.assert_array_equal(np.concatenate(pieces), np.arange(111, dtype=np.float16))


@pytest.mark.parametrize("ranks", [[0], [0, -1], [0, 1, 2]])
def test_ranks_that_do_not_fit_are_an_error(ranks):
    with tf.Graph().as_default(), tf1.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="2 chunks"):
        session.run(parts(tf.zeros([192], tf.int8), 2, [192], ranks=ranks))


@pytest.mark.parametrize("value", [-2, 1, 1024, MIN_PARTITION_BYTES - 1])
def test_a_size_that_is_too_small_is_refused(value):
    with pytest.raises(TfschedError, match=f"partition_bytes is {value}; give .auto., 0 .never cut., or 4096 or more"):
        Options(partition_bytes=value)
