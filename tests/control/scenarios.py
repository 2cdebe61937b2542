"""What tasks of these tests' clusters are asked for."""

import os
import socket
import threading

import tensorflow as tf

v1 = tf.compat.v1


def open_doors(task):
    """Ports on which this process listens, and its threads that serve something."""
    ports = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    ports.add(one.getsockname()[1])
        except (OSError, IndexError):  # closed since, or of a family without ports
            continue
    threads = [thread.name for thread in threading.enumerate()]
    return sorted(ports), [name for name in threads if name.startswith(("tfsched-control", "tfsched-metrics"))]


def transfers(task, last):
    """The newest transfers."""
    import tfsched

    return tfsched.transfers(last=last)


def _writer(kind, path):
    if kind == "directory":
        return path
    if kind == "v2":
        return tf.summary.create_file_writer(path)
    with tf.Graph().as_default():
        return v1.summary.FileWriter(path)


def fit(task, library, kind, path, epochs, every_steps):
    """Model.fit of one process, 5 batches an epoch; what its history says."""
    import tfsched

    if library == "keras":
        import keras
    else:
        import tf_keras as keras
    model = keras.Sequential([keras.layers.Input([8]), keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    rows = tf.reshape(tf.range(160, dtype=tf.float32), [20, 8]) / 160
    callbacks = [] if path is None else [tfsched.ScalarsCallback(_writer(kind, path), every_steps)]
    told = model.fit(rows, tf.ones([20, 1]), batch_size=4, epochs=epochs, verbose=0, shuffle=False, callbacks=callbacks)
    return [float(loss) for loss in told.history["loss"]]


def monitored(task, kind, path, steps, every_steps):
    """A MonitoredSession on the cluster; its losses as hexadecimal floats."""
    from scenarios import common

    import tfsched

    hooks = [] if path is None else [tfsched.ScalarsHook(_writer(kind, path), every_steps)]
    model = common.mlp(task, layers=3, width=64)
    with model.graph.as_default():
        scaffold = v1.train.Scaffold(init_op=model.init, saver=v1.train.Saver())
        creator = v1.train.ChiefSessionCreator(scaffold, task.target, config=common.session_config(task, {}))
        with v1.train.MonitoredSession(creator, hooks) as session:
            return [float(session.run(model.fetches["train"])).hex() for _ in range(steps)]
