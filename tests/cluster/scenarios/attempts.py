"""One closure attempted several times, written by hand with the barrier's ops: its update is an addition to a variable."""

import types

import tensorflow as tf
from tensorflow.python.framework import function
from tensorflow.python.ops import gen_resource_variable_ops as resources

from .common import v1

_CLIENT = "attempts"
_ELEMENTS = 2


def open_attempts(task):
    """A session whose step adds what it is fed; fed another shape, the update fails."""
    import tfsched

    tfsched.load()
    from tfsched.ops import library

    ops = library.load()
    home = f"/job:{task.spec['job']}/replica:0/task:{task.spec['index']}/device:CPU:0"
    ps = "/job:ps/replica:0/task:0/device:CPU:0"
    node = v1.NodeDef(name="add", op="AssignAddVariableOp", input=["variable", "value"])
    node.attr["dtype"].type = tf.float32.as_datatype_enum

    @function.Defun(tf.int64, tf.int64, func_name="add_in_background")
    def add(token, order):
        with tf.device(ps):
            there, variables = ops.tfsched_variables(order, N=1)
            expected = ops.tfsched_expect(there, variables, client=_CLIENT, shared=False)
        with tf.device(home):
            ops.tfsched_ack(token, [expected])
            value = ops.tfsched_take(token, T=tf.float32, key="value", shape=None)
        with tf.device(ps), tf.control_dependencies([expected]):
            error = ops.tfsched_update([variables[0], value], [], node=node.SerializeToString())
            with tf.control_dependencies([error]):
                ops.tfsched_notify(there, variables[0])
        with tf.device(home):
            ops.tfsched_verdict(token, [error])

    built = types.SimpleNamespace()
    with tf.Graph().as_default() as graph:
        with tf.device(ps):
            variable = resources.var_handle_op(dtype=tf.float32, shape=[_ELEMENTS], shared_name="attempted")
            init = resources.assign_variable_op(variable, tf.zeros([_ELEMENTS]))
            handles = ops.tfsched_handles([variable])
            built.value = resources.read_variable_op(variable, tf.float32)
        with tf.device(home):
            built.fed = v1.placeholder(tf.float32, [None])
            built.numbers = v1.placeholder(tf.int64, [None])
            built.number = ops.tfsched_number_runs(built.numbers, client=_CLIENT)
            token = ops.tfsched_background_call([handles], client=_CLIENT, f=add)
            here = ops.tfsched_open(token, client=_CLIENT, slots=1)
            with tf.control_dependencies([ops.tfsched_put(built.fed, here, key="value")]):
                built.step = ops.tfsched_join(token)
            built.drain = ops.tfsched_drain(client=_CLIENT)
    config = v1.ConfigProto(operation_timeout_in_ms=60_000)
    config.device_filters.extend(["/job:ps", f"/job:{task.spec['job']}/task:{task.spec['index']}"])
    built.session = v1.Session(task.target, graph=graph, config=config)
    built.session.run(init)
    task.state["attempts"] = built


def attempt(task, elements, epoch, again=()):
    """Adds 1 to each element, as the run ``again`` or the first of ``epoch``; the error and the variable."""
    built = task.state["attempts"]
    built.session.run(built.number, {built.numbers: [epoch, *again]})
    error = ""
    try:
        built.session.run(built.step, {built.fed: [1.0] * elements})
        built.session.run(built.drain)
    except tf.errors.OpError as caught:
        error = caught.message
    return error, built.session.run(built.value).tolist()
