"""Sharded variables of a graph: Keras layers have shards, values and checkpoints are those of whole variables."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tfsched import TfschedError
from tfsched.placement import balanced_device_setter, shard_partitioner, sharded_variables

v1 = tf.compat.v1
STEPS = 3


def cut(shard_bytes=1000, servers=2):
    return sharded_variables(servers, shard_bytes)


def glorot(seed):
    return tf_keras.initializers.GlorotUniform(seed=seed)


def layers():
    return [
        tf_keras.layers.Conv2D(64, 3, kernel_initializer=glorot(1)),
        tf_keras.layers.BatchNormalization(),
        tf_keras.layers.Flatten(),
        tf_keras.layers.Dense(32, kernel_regularizer="l2", kernel_initializer=glorot(2)),
    ]


def train(scope, directory, use_resource, restore=None):
    """The losses of some steps, what a checkpoint has of each variable, and the names of the trainable variables."""
    with tf.Graph().as_default(), contextlib.ExitStack() as stack:
        v1.set_random_seed(3)
        inputs = v1.placeholder(tf.float32, [None, 8, 8, 3])
        stack.enter_context(scope)
        hidden = inputs
        made = layers() if use_resource else []  # Keras makes no others
        for layer in made:
            hidden = layer(hidden)
        hidden = tf.reshape(hidden, [4, -1])[:, :32]
        uniform = v1.glorot_uniform_initializer(seed=4)
        weights = v1.get_variable("scope/weights", [32, 100], initializer=uniform, use_resource=use_resource)
        own = tf.Variable(np.linspace(0.0, 0.1, 1000, dtype=np.float32).reshape(100, 10), name="own")
        hidden = tf.matmul(tf.matmul(hidden, weights), own)
        loss = tf.reduce_mean(tf.square(hidden - 0.5))
        # A regularizer's own sum has another last bit with shards; what is trained has not.
        extra = [one for layer in made for one in layer.losses]
        step = v1.train.AdamOptimizer(0.01).minimize(tf.add_n([loss, *extra]))
        saver = v1.train.Saver()
        names = [variable.op.name for variable in v1.trainable_variables()]
        draw = np.random.RandomState(1)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            if restore:
                saver.restore(session, restore)
            losses = [float(session.run([loss, step], {inputs: draw.rand(4, 8, 8, 3)})[0]).hex() for _ in range(STEPS)]
            path = saver.save(session, str(directory / "model"))
        reader = tf.train.load_checkpoint(path)
        saved = {name: reader.get_tensor(name).tobytes() for name in reader.get_variable_to_shape_map()}
    return losses, saved, names, path


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
def test_steps_and_checkpoints_are_those_of_whole_variables(tmp_path, use_resource):
    whole = train(contextlib.nullcontext(), tmp_path / "whole", use_resource)
    cut_up = train(cut(), tmp_path / "cut", use_resource)
    assert {"scope/weights/part_0", "scope/weights/part_1", "own/part_0", "own/part_1"} <= set(cut_up[2])
    assert ("conv2d/kernel/part_1" in cut_up[2]) == use_resource
    assert not any("part" in name for name in whole[2])
    assert cut_up[:2] == whole[:2]
    assert len(set(whole[0])) == STEPS  # it really trains
    onward = train(contextlib.nullcontext(), tmp_path / "whole again", use_resource, restore=cut_up[3])
    assert train(cut(), tmp_path / "cut again", use_resource, restore=whole[3])[:2] == onward[:2]


def test_layers_models_and_collections_have_the_shards():
    with tf.Graph().as_default(), cut(servers=3):
        model = tf_keras.Sequential([tf_keras.Input([100]), tf_keras.layers.Dense(20), tf_keras.layers.Dense(4)])
        names = [variable.op.name for variable in model.trainable_weights]
        shards = [f"dense/kernel/part_{number}" for number in range(3)]
        assert names[:4] == [*shards, "dense/bias"]
        assert [variable.op.name for variable in v1.global_variables()] == names
        assert [variable.shape.as_list() for variable in model.weights[:3]] == [[34, 20], [33, 20], [33, 20]]
        assert all(variable.initializer is not None for variable in v1.global_variables())
        # No op of a variable that nobody initializes.
        assert {op.name for op in v1.get_default_graph().get_operations() if op.type == "VarHandleOp"} == set(names)


def test_each_server_gets_a_shard_and_slots_stay_with_it():
    with tf.Graph().as_default(), v1.device(balanced_device_setter(ps_tasks=2)), cut():
        kernel, other = v1.get_variable("kernel", [100, 10]), v1.get_variable("other", [300])
        loss = tf.reduce_sum(tf.square(kernel)) + tf.reduce_sum(other)
        optimizer = v1.train.AdamOptimizer()
        optimizer.minimize(loss)
        assert [part.device for part in kernel.variables] == ["/job:ps/task:0", "/job:ps/task:1"]
        for part in [*kernel.variables, *other.variables]:
            slot = optimizer.get_slot(part, "m")
            assert (slot.device, slot.shape) == (part.device, part.shape)


def test_what_has_to_stay_whole_does():
    rows = shard_partitioner(2, shard_bytes=1000)
    with tf.Graph().as_default(), cut():
        small = v1.get_variable("small", [250])
        scalar = v1.get_variable("scalar", [])
        bound = v1.get_variable("bound", [100, 10], constraint=lambda value: tf.clip_by_norm(value, 1.0))
        unknown = v1.get_variable("unknown", initializer=lambda: tf.ones([1000]))
        with v1.variable_scope("", partitioner=rows):
            twice = v1.get_variable("twice", [1000, 10])
        v1.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(bound) + tf.reduce_sum(unknown))
        sharded = tf.__internal__.distribute.ShardedVariable
        parts = list(twice)
        assert [part.shape.as_list() for part in parts] == [[500, 10], [500, 10]]
        assert not any(isinstance(variable, sharded) for variable in [small, scalar, bound, unknown, *parts])
        assert not any("/Momentum/part" in variable.op.name for variable in v1.global_variables())


def test_a_variable_is_found_again():
    with tf.Graph().as_default(), cut():
        first = v1.get_variable("kernel", [100, 10])
        with v1.variable_scope("", reuse=True):
            assert v1.get_variable("kernel", [100, 10]) is first
        assert len(v1.global_variables()) == 2


def test_wrong_numbers_are_told():
    with pytest.raises(TfschedError, match="at least one parameter server"), sharded_variables(0):
        pass
    with pytest.raises(TfschedError, match="shard_bytes is 0"), sharded_variables(2, shard_bytes=0):
        pass
