"""Which server is chosen, and how variables are cut, without a cluster."""

import random

import pytest
import tensorflow as tf

from tfsched import TfschedError
from tfsched.placement import balanced_device_setter, shard_partitioner
from tfsched.placement.balance import Loads, shards_of

v1 = tf.compat.v1


@pytest.mark.parametrize("servers", [1, 2, 3, 8])
def test_no_two_servers_differ_by_more_than_the_largest_part(servers):
    draw = random.Random(servers)
    for _ in range(50):
        loads, sizes = Loads(servers), [draw.randrange(1, 10 ** draw.randrange(1, 8)) for _ in range(draw.randrange(1, 60))]
        for size in sizes:
            loads.add(loads.emptiest(), size)
        assert sum(loads.bytes) == sum(sizes)
        assert max(loads.bytes) - min(loads.bytes) <= max(sizes)


@pytest.mark.parametrize(
    ("size", "rows", "shards"), [(100, 64, 1), (101, 64, 4), (101, 3, 3), (101, 1, 1), (0, 0, 1)], ids=str
)
def test_what_is_large_has_a_shard_for_each_server(size, rows, shards):
    assert shards_of(size, rows, servers=4, shard_bytes=100) == shards


def test_a_partitioner_cuts_the_first_axis_of_known_shapes_only():
    partitioner = shard_partitioner(3, shard_bytes=4000)
    assert partitioner(shape=tf.TensorShape([50, 20]), dtype=tf.float32) == [1, 1]
    assert partitioner(shape=tf.TensorShape([50, 21]), dtype=tf.float32) == [3, 1]
    assert partitioner(shape=tf.TensorShape([50, 21]), dtype=tf.bfloat16) == [1, 1]
    assert partitioner(shape=tf.TensorShape([2, 3000]), dtype=tf.float32) == [2, 1]
    assert partitioner(shape=tf.TensorShape([]), dtype=tf.float32) == []
    assert partitioner(shape=tf.TensorShape([None, 5000]), dtype=tf.float32) == [1, 1]


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
def test_a_graph_is_balanced_and_slots_stay_with_their_variables(use_resource):
    with tf.Graph().as_default(), v1.device(balanced_device_setter(ps_tasks=2)):
        sizes = [300, 100, 100, 50, 60, 90]
        variables = [v1.get_variable(f"w{number}", [size], use_resource=use_resource) for number, size in enumerate(sizes)]
        loss = tf.add_n([tf.reduce_sum(variable * variable) for variable in variables])
        optimizer = v1.train.AdamOptimizer()
        optimizer.minimize(loss)
        for variable in variables:
            assert {optimizer.get_slot(variable, name).device for name in optimizer.get_slot_names()} == {variable.device}
        assert loss.device == "/job:worker"
    assert [int(variable.device[-1]) for variable in variables] == [0, 1, 1, 1, 1, 0]


def test_without_a_server_it_says_so():
    with pytest.raises(TfschedError, match="at least one parameter server"):
        balanced_device_setter(cluster={"worker": ["localhost:1"]})
    with pytest.raises(TfschedError, match="at least one parameter server"):
        shard_partitioner(0)
    with pytest.raises(TfschedError, match="shard_bytes is 0"):
        shard_partitioner(2, shard_bytes=0)
