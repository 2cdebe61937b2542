"""A program that serves the tasks on which it calls functions: outputs and inputs of functions on all of them."""

import itertools
import threading

import tensorflow as tf

from . import strategy as strategies

_TASKS = ("/job:localhost/replica:0/task:0", "/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1")
# (caller, owner); stock TensorFlow cannot hand an output of a remote function to its client's own task.
PAIRS = [(caller, owner) for caller in _TASKS for owner in _TASKS if caller == _TASKS[0] or owner != _TASKS[0]]
LOOKS = ("backing_device", "device", "shape", "numpy")


def _look(tensor, how):
    """One thing that a program may ask a tensor for first."""
    found = getattr(tensor, how)
    return found().tolist() if how == "numpy" else found.as_list() if how == "shape" else found


def _function(variable, at, more):
    """Reads a variable that is elsewhere, and leaves an output with it. Each is traced, and seen by the pass, once."""

    @tf.function
    def both(value):
        with tf.device(f"{at}/cpu:0"):
            there = variable + more
        return value + variable, there

    return both


def _join(task, options):
    """Serves two tasks here, joins them and makes a variable on each task: owner -> variable."""
    import tfsched
    from tfsched.bench.ports import free_ports

    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
    task.state["servers"] = [tfsched.Server(cluster, job_name="worker", task_index=index) for index in range(2)]
    strategies.switch(options)
    tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec(cluster), protocol=task.spec["protocol"])
    variables = {}
    for owner in _TASKS:
        with tf.device(f"{owner}/cpu:0"):
            variables[owner] = tf.Variable([10, 20])
    return variables


def everywhere(task, options):
    """For each pair of tasks a function called on the first that reads a variable of the second; each way to look first.

    Returns:
      [caller, owner, look, output, what was found, value] of each.
    """
    import tfsched

    variables = _join(task, options)
    rows = []
    for number, ((caller, owner), look) in enumerate(itertools.product(PAIRS, LOOKS)):
        with tf.device(f"{_TASKS[number % 3]}/cpu:0"):  # whoever has the input
            value = tf.constant([number, 0])
        with tf.device(f"{caller}/cpu:0"):
            outputs = _function(variables[owner], owner, number)(value)
        found = [_look(tensor, look) for tensor in outputs]
        for index, tensor in enumerate(outputs):
            rows.append([caller, owner, look, index, found[index], tensor.numpy().tolist()])
    tfsched.drain()
    return rows


def seeds(task, options, calls=20):
    """Sets the random seed again and again while another thread calls functions on a task that this process serves."""
    variables = _join(task, options)
    values, ended = [], threading.Event()

    def call():
        try:
            for number in range(calls):
                with tf.device(f"{_TASKS[1]}/cpu:0"):
                    outputs = _function(variables[_TASKS[2]], _TASKS[2], number)(tf.constant([number, 0]))
                values.append([tensor.numpy().tolist() for tensor in outputs])
        finally:
            ended.set()

    threading.Thread(target=call, daemon=True).start()
    seed = 0
    while not ended.wait(0.001):
        seed += 1
        tf.random.set_seed(seed)
    return {"values": values, "seeds": seed}


def renamed(task, times):
    """Joins a task under another job's name, again and again, and fetches what its functions have computed.

    Each time TensorFlow draws another step, from all numbers, for what the task sends.
    """
    import tfsched
    from tfsched.bench.ports import free_ports

    (port,) = free_ports(1)
    task.state["servers"] = [tfsched.Server({"worker": [f"127.0.0.1:{port}"]}, job_name="worker", task_index=0)]
    values = []
    for _ in range(times):
        cluster = tf.train.ClusterSpec({"guest": [f"127.0.0.1:{port}"]})
        tf.config.experimental_connect_to_cluster(cluster, protocol=task.spec["protocol"])
        with tf.device("/job:guest/task:0/device:CPU:0"):
            value = tf.function(lambda: tf.strings.upper(tf.constant(["a", "b"])))()
        values.append(value.numpy().tolist())
    return [[text.decode() for text in pair] for pair in values]
