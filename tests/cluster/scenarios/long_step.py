"""A closure that lasts until it is told to end, while its coordinator reads variables; runs inside of its task."""

import tensorflow as tf
from scenarios import strategy as strategies

_WORKER = "/job:worker/replica:0/task:0/device:CPU:0"
_STEPS = 3


def _gate():
    return tf.raw_ops.FIFOQueueV2(component_types=[tf.float32], shapes=[[]], shared_name="gate")


def read_meanwhile(task, options):
    """Trains a few steps, and reads while the next one waits for its input.

    Returns:
      What was read of the variable that the step updates and of another one, and the variable's value in the end.
    """
    strategy, coordinator = strategies.join(task)
    strategies.switch(options)
    with strategy.scope():
        trained = tf.Variable(tf.zeros([4096]))
        other = tf.Variable(tf.fill([4096], 7.0))

    def replica(number):
        waited = tf.cond(
            number < 0.0,
            lambda: tf.raw_ops.QueueDequeueV2(handle=_gate(), component_types=[tf.float32])[0],
            lambda: 1.0,
        )
        nothing = tf.minimum(tf.abs(tf.reduce_sum(trained)), 0.0)  # which Grappler does not know
        trained.assign_add(tf.fill([4096], waited) + nothing)
        return waited

    step = tf.function(lambda number: strategy.run(replica, args=(number,)))
    for number in range(_STEPS):
        coordinator.schedule(step, args=(tf.constant(float(number)),))
    coordinator.join()
    result = coordinator.schedule(step, args=(tf.constant(-1.0),))
    read = [float(trained.numpy()[0]), float(other.numpy()[0])]
    assert not result._status_available_event.is_set(), "the step did not wait"
    with tf.device(_WORKER):
        tf.raw_ops.QueueEnqueueV2(handle=_gate(), components=[tf.constant(1.0)])
    result.fetch()
    read.append(float(trained.numpy()[0]))
    coordinator.join()
    return [*read, float(trained.numpy()[0])]
