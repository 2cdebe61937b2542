"""Training that is ended and started again: tf_keras' BackupAndRestore, and PreemptionCheckpointHandler in a custom loop."""

import os
import threading

import tensorflow as tf

from .mirrored import _BATCH, _WIDTH, Descent, Model, _text, join

_EPOCHS, _BATCHES = 4, 6
_WAIT_S = 120  # for the end that the test makes of a worker


class _Preempted(Exception):
    """The checkpoint is written, and the program would end."""


def fit(task, directory, options=None, stay_in=None):
    """Model.fit with BackupAndRestore; every variable afterwards, and the epochs that were begun.

    Args:
      directory: of the backups; the same for all workers.
      stay_in: (epoch, batch) that this worker does not go on from: somebody ends its process.
    """
    import tf_keras

    strategy = join(task, options)
    begun = []

    class Stay(tf_keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            del logs
            begun.append(epoch)

        def on_train_batch_begin(self, batch, logs=None):
            del logs
            if stay_in is not None and [begun[-1], batch] == list(stay_in):
                task.state["stays"] = True
                threading.Event().wait(_WAIT_S)

    with strategy.scope():
        tf_keras.utils.set_random_seed(1)
        model = tf_keras.Sequential(
            [
                tf_keras.layers.Dense(160, activation="tanh", input_shape=(_WIDTH,)),
                tf_keras.layers.Dense(160, activation="tanh"),
                tf_keras.layers.Dense(_WIDTH),
            ]
        )
        model.compile(tf_keras.optimizers.Adam(0.01), loss="mse")
    inputs = tf.random.stateless_normal([8 * _BATCHES, _WIDTH], [1, 2])
    data = tf.data.Dataset.from_tensor_slices((inputs, tf.roll(inputs, 1, axis=1))).batch(8)
    backup = tf_keras.callbacks.BackupAndRestore(os.path.join(directory, "backup"))
    model.fit(data, epochs=_EPOCHS, verbose=0, callbacks=[backup, Stay()])
    values = [_text(variable) for variable in [*model.variables, *model.optimizer.variables]]
    return {"variables": values, "epochs": begun}


def stays(task):
    """Whether the worker has come to where it stays."""
    return task.state.get("stays", False)


def train_until_preempted(task, directory, options=None, steps=30, preempted_at=None, pause_s=0.0):
    """A custom loop of ``steps`` steps under PreemptionCheckpointHandler; every variable afterwards, and its first step.

    Args:
      directory: of the checkpoints; the same for all workers.
      preempted_at: from this step on the worker's machine says that it is about to go; None for never.
      pause_s: between steps: TensorFlow looks once a second whether the machine goes.

    Returns:
      None in place of the variables, and the step that was saved, if it was preempted.
    """
    os.environ["GCE_METADATA_IP"] = "127.0.0.1:9"  # on Google's machines without accelerators TensorFlow leaves it out
    strategy = join(task, options)
    with strategy.scope():
        model, rule = Model(), Descent(0.9)
        rule.build(model.variables_)
    variables = [*model.variables_, *rule.variables]
    made = []  # steps; the handler asks from its first moment on

    def leave():
        raise _Preempted

    handler = tf.distribute.experimental.PreemptionCheckpointHandler(
        strategy.cluster_resolver,
        tf.train.Checkpoint(all=variables),
        os.path.join(directory, "checkpoints"),
        tf.distribute.experimental.TerminationConfig(
            termination_watcher_fn=lambda: preempted_at is not None and len(made) >= preempted_at,
            exit_fn=leave,
        ),
    )

    @tf.function
    def step(number):
        def replica(number):
            batch = tf.random.stateless_normal([_BATCH, _WIDTH], [number, 7 + task.spec["index"]])
            with tf.GradientTape() as tape:
                loss = model.loss(batch)
            rule.apply_gradients(list(zip(tape.gradient(loss, model.variables_), model.variables_, strict=True)))
            return loss

        return strategy.run(replica, args=(tf.cast(number, tf.int32),))

    first, over = int(handler.total_run_calls), threading.Event()
    task.state["handler"] = handler  # its threads end with it
    for number in range(first, steps):
        over.wait(pause_s)
        try:
            handler.run(step, tf.constant(number))
        except _Preempted:
            return {"variables": None, "first": first, "saved": number}
        made.append(number)
    return {"variables": [_text(one) for one in variables], "first": first}
