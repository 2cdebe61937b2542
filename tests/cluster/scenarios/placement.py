"""Training with variables in turn on the servers, and balanced over them; checkpoints go from one to the other."""

import contextlib

import numpy as np
import tensorflow as tf

from . import common, strategy
from .common import v1

_SHAPES = [(96, 64), (64, 8), (8, 640), (640, 16), (16, 16), (16, 4)]
_SHARD_BYTES = 10_000


def _bytes_of(variables):
    """Bytes by device."""
    held = {}
    for variable in variables:
        device = variable.device[: variable.device.find("/device")] if "/device" in variable.device else variable.device
        held[device] = held.get(device, 0) + variable.shape.num_elements() * variable.dtype.size
    return held


def in_session(task, balanced, options, directory, steps, by_scope=False):
    """Trains from the newest checkpoint in `directory`, or from the beginning; leaves a new one."""
    from tfsched import placement

    servers = len(task.spec["cluster"]["ps"])
    setter, partitioner, scope = common.on_ps(task), None, contextlib.nullcontext()
    if balanced:
        setter = placement.balanced_device_setter(ps_tasks=servers, worker_device=common.here(task))
        if by_scope:
            scope = placement.sharded_variables(servers, _SHARD_BYTES)
        else:
            partitioner = placement.shard_partitioner(servers, _SHARD_BYTES)
    with tf.Graph().as_default() as graph, v1.device(setter), v1.variable_scope("", partitioner=partitioner), scope:
        batch = v1.placeholder(tf.float32, [4, 96])
        hidden = batch
        for layer, shape in enumerate(_SHAPES):
            start = v1.zeros_initializer() if layer % 2 else v1.constant_initializer(0.01 * (layer + 1))
            weight = v1.get_variable(f"w{layer}", shape, initializer=start, use_resource=True)
            bias = v1.get_variable(f"b{layer}", shape[1:], initializer=v1.constant_initializer(0.02), use_resource=True)
            hidden = tf.tanh(hidden @ tf.convert_to_tensor(weight) + tf.convert_to_tensor(bias))
        loss = tf.reduce_mean(tf.square(hidden - 0.5))
        train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        saver, init = v1.train.Saver(), v1.global_variables_initializer()
        held = _bytes_of(v1.trainable_variables())
    newest = tf.train.latest_checkpoint(directory)
    draw = np.random.RandomState(3)
    with v1.Session(task.target, graph=graph, config=common.session_config(task, options)) as session:
        session.run(init)
        if newest:
            saver.restore(session, newest)
        losses = [
            float(session.run([loss, train], {batch: draw.randn(4, 96).astype(np.float32)})[0]).hex() for _ in range(steps)
        ]
        newest = saver.save(session, f"{directory}/model", global_step=0 if newest is None else 1 + int(newest[-1]))
    return {"losses": losses, "held": held, "saved": _content(newest)}


def _content(path):
    reader = tf.train.load_checkpoint(path)
    return {
        name: reader.get_tensor(name).tobytes().hex()
        for name in sorted(reader.get_variable_to_shape_map())
        if not name.startswith(("save_counter", "_CHECKPOINTABLE"))
    }


def in_session_by_scope(task, **arguments):
    """With `sharded_variables` in place of a partitioner."""
    return in_session(task, by_scope=True, **arguments)


def first_values(task):
    """The values that Keras gives a kernel when it is made, drawn from one seed: cut by balanced_strategy, and whole."""
    import tf_keras

    from tfsched import placement

    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(task.spec["cluster"]), task_type="chief", task_id=0, rpc_layer=task.spec["protocol"]
    )
    made = []
    for scope in (placement.balanced_strategy(resolver, shard_bytes=_SHARD_BYTES).scope(), contextlib.nullcontext()):
        with scope:
            layer = tf_keras.layers.Dense(64, kernel_initializer=tf_keras.initializers.HeNormal(seed=5))
            layer.build([None, 100])
            made.append((len(layer.weights), tf.convert_to_tensor(layer.kernel).numpy().tobytes().hex()))
    return made


def in_strategy(task, balanced, options, directory, steps):
    """The same under ParameterServerStrategy, with tf_keras' Adam."""
    import tf_keras

    from tfsched import placement

    key = f"strategy {balanced}"
    if key not in task.state:
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(task.spec["cluster"]), task_type="chief", task_id=0, rpc_layer=task.spec["protocol"]
        )
        made = (
            placement.balanced_strategy(resolver, shard_bytes=_SHARD_BYTES)
            if balanced
            else tf.distribute.ParameterServerStrategy(resolver)
        )
        task.state[key] = made, tf.distribute.coordinator.ClusterCoordinator(made)
    scope, coordinator = task.state[key]
    strategy.switch(options)
    with scope.scope():
        layers = [
            tf_keras.layers.Dense(shape[1], "tanh", kernel_initializer=tf_keras.initializers.Constant(0.01 * (1 + layer)))
            for layer, shape in enumerate(_SHAPES)
        ]
        model = tf_keras.Sequential([tf_keras.Input([96]), *layers])
        rule = tf_keras.optimizers.Adam(0.01)
        rule.build(model.trainable_variables)
        checkpoint = tf.train.Checkpoint(model=model, rule=rule)
        manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=None)
        manager.restore_or_initialize()

    def replica(number):
        batch = tf.random.stateless_normal([4, 96], [number, 7])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(batch) - 0.5))
        variables = model.trainable_variables
        rule.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    step = tf.function(lambda number: scope.run(replica, args=(number,)))
    losses = []
    for number in range(steps):
        losses.append(float(coordinator.schedule(step, args=(tf.constant(number),)).fetch()).hex())
        coordinator.join()
    return {"losses": losses, "held": _bytes_of(model.trainable_variables), "saved": _content(manager.save())}
