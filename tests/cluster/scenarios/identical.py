"""Training of whole models with deterministic ops. Each function returns every loss and a digest of every variable."""

import hashlib

import numpy as np
import tensorflow as tf

from . import common
from .common import v1

_BATCH = 2


def _deterministic():
    # May be called once a process only in some releases: after that it stays on.
    tf.config.experimental.enable_op_determinism()


def _train(task, options, graph, loss, train, feeds, init=None):
    """One step per feed; {"losses": [hexadecimal], "variables": {name: digest of its bytes}}."""
    with v1.Session(task.target, graph=graph, config=common.session_config(task, options)) as session:
        session.run(v1.global_variables_initializer() if init is None else init)
        losses = [float(session.run([loss, train], feed)[0]).hex() for feed in feeds]
        values = session.run({variable.name: variable for variable in v1.global_variables()})
    digests = {name: hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest() for name, value in values.items()}
    return {"losses": losses, "variables": digests}


def mlp(task, options, steps, use_resource):
    """The chain of layers, with resource or reference variables and an optimizer with slots."""
    _deterministic()
    tf.random.set_seed(1)
    with tf.Graph().as_default() as graph, v1.device(common.on_ps(task)):
        v1.set_random_seed(1)
        batch = v1.placeholder(tf.float32, [4, 96])
        hidden = batch
        for layer in range(8):
            weight = common.variable(f"w{layer}", [96, 96], layer, use_resource)
            bias = v1.get_variable(f"b{layer}", [96], initializer=v1.zeros_initializer(), use_resource=use_resource)
            hidden = tf.tanh(hidden @ weight + bias)
        loss = tf.reduce_mean(tf.square(hidden - 0.5))
        train = v1.train.AdamOptimizer(0.01).minimize(loss)
        draw = np.random.RandomState(3)
        feeds = [{batch: draw.randn(4, 96).astype(np.float32)} for _ in range(steps)]
        return _train(task, options, graph, loss, train, feeds)


def control_flow_and_embeddings(task, options, steps):
    """A partitioned embedding table with sparse gradients, a branch and a loop that read variables, changing feeds."""
    _deterministic()
    with tf.Graph().as_default() as graph, v1.device(common.on_ps(task)):
        v1.set_random_seed(2)
        ids = v1.placeholder(tf.int64, [_BATCH, None])
        rounds = v1.placeholder(tf.int32, [])
        parts = len(task.spec["cluster"]["ps"])
        table = v1.get_variable(
            "table",
            [64, 48],
            initializer=v1.glorot_uniform_initializer(seed=4),
            partitioner=v1.fixed_size_partitioner(parts),
        )
        weights = [common.variable(f"w{number}", [48, 48], number) for number in range(4)]
        value = tf.reduce_mean(tf.nn.embedding_lookup(table, ids), axis=1)
        value = tf.tanh(value @ weights[0])
        even = tf.equal(tf.reduce_sum(ids) % 2, 0)
        value = tf.cond(even, lambda: tf.tanh(value @ weights[1]), lambda: tf.sin(value @ weights[2]))
        _, value = tf.while_loop(
            lambda number, _: number < rounds,
            lambda number, inner: (number + 1, tf.tanh(inner @ weights[3].read_value())),
            [0, value],
        )
        loss = tf.reduce_mean(tf.square(value - 0.5))
        train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        draw = np.random.RandomState(5)
        feeds = [
            {ids: draw.randint(0, 64, [_BATCH, 1 + step % 5]), rounds: step % 4}  # ids repeat: gradients are summed
            for step in range(steps)
        ]
        return _train(task, options, graph, loss, train, feeds)


def resnet50(task, options, steps):
    """tf_keras' ResNet50 on tiny pictures, with its batch normalisation's updates."""
    import tf_keras

    _deterministic()
    with tf.Graph().as_default() as graph, v1.device(common.on_ps(task)):
        tf_keras.utils.set_random_seed(6)
        tf_keras.backend.set_learning_phase(1)
        images = v1.placeholder(tf.float32, [_BATCH, 32, 32, 3])
        labels = v1.placeholder(tf.int32, [_BATCH])
        model = tf_keras.applications.ResNet50(weights=None, input_tensor=images, classes=10, classifier_activation=None)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=model.outputs[0])
        loss = tf.reduce_mean(losses)
        train = v1.train.GradientDescentOptimizer(1e-4).minimize(loss)
        updates = [update for layer in model.layers for update in getattr(layer, "_updates", [])]
        draw = np.random.RandomState(7)
        feeds = [
            {images: draw.randn(_BATCH, 32, 32, 3).astype(np.float32), labels: draw.randint(0, 10, [_BATCH])}
            for _ in range(steps)
        ]
        return _train(task, options, graph, loss, tf.group(train, *updates), feeds)
