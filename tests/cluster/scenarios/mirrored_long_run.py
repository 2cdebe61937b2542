"""Many small all-reduced steps."""

import tensorflow as tf

from . import mirrored


def begin(task, options):
    """Makes a step whose gradients are exchanged as one large tensor and one bundle."""
    strategy = mirrored.join(task, options)
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(shape)) for shape in ([160, 128], [128, 8], [8])]
        count = tf.Variable(0, dtype=tf.int64, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

    def replica():
        # Not constants: Grappler would fold them, and their pack, to one.
        one = task.spec["index"] + 1.0
        gradients = [tf.clip_by_value(variable, one, one) for variable in variables]
        reduced = tf.distribute.get_replica_context().all_reduce("sum", gradients)
        for variable, gradient in zip(variables, reduced, strict=True):
            variable.assign_add(gradient)
        return count.assign_add(1)

    task.state["long_run"] = tf.function(lambda: strategy.run(replica)), variables


def steps(task, count):
    """Runs steps; what the variables' elements are then, each of them the same."""
    step, variables = task.state["long_run"]
    for _ in range(count):
        step()
    values = {float(value) for variable in variables for value in tf.unique(tf.reshape(variable.read_value(), [-1]))[0]}
    return sorted(values)
