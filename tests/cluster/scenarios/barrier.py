"""Training whose updates go on after the step, written by hand with the barrier's ops; and the same without them."""

import atexit
import hashlib
import threading
import time
import types

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute.coordinator import cluster_coordinator
from tensorflow.python.framework import function
from tensorflow.python.ops import gen_resource_variable_ops as resources

from .common import v1

_BATCH = 8


def _names(layers):
    return [f"w{number}" for number in range(layers)]


def _first_value(number, width):
    return (np.random.RandomState(number).randn(width, width) / np.sqrt(width)).astype(np.float32)


def feed_of(step, width):
    """The data of one step."""
    return np.random.RandomState(1000 + step).randn(_BATCH, width).astype(np.float32)


def _gate(name):
    """A queue that something takes one element of before it goes on."""
    return tf.raw_ops.FIFOQueueV2(component_types=[tf.int32], shapes=[[]], shared_name=name)


def _pass(name):
    return tf.raw_ops.QueueDequeueV2(handle=_gate(name), component_types=[tf.int32])


def _let_pass(name):
    return tf.raw_ops.QueueEnqueueV2(handle=_gate(name), components=[1])


class Training:
    """A session that trains ``layers`` matrices, spread over the parameter servers.

    Fetches: "train" is a step, "loss" its loss. Feeds: "bad" makes the step fail before its last Put, "poison" makes
    the last update fail.

    Args:
      task: where it runs; its home.
      client: who trains; None for plain synchronous training.
      gated: updates wait until "open_gate" was run, once for each step.
      held: a step does not start its updates before "let_step" was run; "await_step" waits for one that could.
      timeout_ms: of each run.
      isolated: whether the session has variables of its own.
      unopened: whether "bad" makes the step fail before any mailbox is open.
    """

    def __init__(self, task, client, layers=2, width=64, timeout_ms=60_000, isolated=False, **faults):
        import tfsched

        tfsched.load()
        from tfsched.ops import library

        self.ops = library.load()
        self.client, self.layers, self.width = client, layers, width
        self.gated, self.held, self.unopened = (faults.pop(name, False) for name in ("gated", "held", "unopened"))
        assert not faults
        servers = len(task.spec["cluster"]["ps"])
        self.ps = [f"/job:ps/replica:0/task:{number % servers}/device:CPU:0" for number in range(layers)]
        self.home = f"/job:{task.spec['job']}/replica:0/task:{task.spec['index']}/device:CPU:0"
        with tf.Graph().as_default() as graph:
            self._build()
        config = v1.ConfigProto(operation_timeout_in_ms=timeout_ms, isolate_session_state=isolated)
        config.device_filters.extend(["/job:ps", f"/job:{task.spec['job']}/task:{task.spec['index']}"])
        self.graph = graph
        self.session = v1.Session(task.target, graph=graph, config=config)

    def _handle(self, number):
        return resources.var_handle_op(dtype=tf.float32, shape=[self.width, self.width], shared_name=f"w{number}")

    def _build(self):
        shape = [self.width, self.width]
        names = _names(self.layers)
        with tf.device(self.home):
            self.batch = v1.placeholder(tf.float32, [_BATCH, self.width])
            self.bad = v1.placeholder_with_default(0.0, [])
            self.poison = v1.placeholder_with_default(0.0, [])
        waits, reads, handles, self.inits, rates = [], [], [], [], []
        for number, ps in enumerate(self.ps):
            with tf.device(ps):
                handle = self._handle(number)
                handles.append(handle)
                start = tf.constant(_first_value(number, self.width))
                self.inits.append(resources.assign_variable_op(handle, start))
                rate = resources.var_handle_op(dtype=tf.float32, shape=[], shared_name=f"rate{number}")
                self.inits.append(resources.assign_variable_op(rate, tf.constant(0.5)))
                rates.append(resources.read_variable_op(rate, tf.float32))
                waiting = []
                if self.client is not None:
                    waiting = [self.ops.tfsched_wait([handle], client=self.client)]
                    waits += waiting
                with tf.control_dependencies(waiting):
                    reads.append(resources.read_variable_op(handle, tf.float32))
        with tf.device(self.home):
            hidden = self.batch
            for read in reads:
                read.set_shape(shape)
                hidden = tf.tanh(hidden @ read)
            self.loss = tf.reduce_mean(tf.square(hidden - 0.5))
            gradients = v1.gradients(self.loss, reads)
            gradients[-1] = v1.check_numerics(gradients[-1] / (1.0 - self.bad), "the step's own error")
        if self.gated:
            with tf.device(self.ps[0]):
                self.open_gate = _let_pass("updates")
        self.values = []
        for number, ps in enumerate(self.ps):
            with tf.device(ps):
                self.values.append(resources.read_variable_op(handles[number], tf.float32))
        if self.client is None:
            self.train = tf.group(
                *[
                    self._apply(number, handles[number], rates[number], gradients[number], self.poison)
                    for number in range(self.layers)
                ]
            )
            return
        push = self._push(names)
        with tf.device(self.home):
            self.let_step, self.await_step = _let_pass("steps"), _pass("arrivals")
            with tf.control_dependencies(waits):
                arrival = _let_pass("arrivals") if self.held else tf.no_op()
            with tf.control_dependencies([arrival]):
                gate = _pass("steps")[0] if self.held else tf.no_op()
            with tf.control_dependencies([gate]):
                token = self.ops.tfsched_background_call([], client=self.client, f=push)
            if self.unopened:
                gradients[0] = v1.check_numerics(gradients[0] / (1.0 - self.bad), "the step's own error")
                with tf.control_dependencies([gradients[0]]):
                    token = tf.identity(token)
            here = self.ops.tfsched_open(token, client=self.client, slots=self.layers + 1)
            puts = [self.ops.tfsched_put(gradient, here, key=name) for gradient, name in zip(gradients, names, strict=True)]
            puts.append(self.ops.tfsched_put(self.poison, here, key="poison"))
        for server in sorted(set(self.ps)):
            mine = [number for number in range(self.layers) if self.ps[number] == server]
            with tf.device(server):
                there = self.ops.tfsched_open(token, client=self.client, slots=len(mine))
                puts += [self.ops.tfsched_put(rates[number], there, key=f"rate{number}") for number in mine]
        with tf.device(self.home), tf.control_dependencies(puts):
            self.train = self.ops.tfsched_join(token)
        with tf.device(self.home):
            self.drain = self.ops.tfsched_drain(client=self.client)
            self.short_drain = self.ops.tfsched_drain(client=self.client, timeout_ms=300)

    def _apply(self, number, handle, rate, gradient, poison):
        with tf.device(self.ps[number]):
            if number == self.layers - 1:
                gradient = v1.check_numerics(gradient / (1.0 - poison), "the update's own error")
            return tf.raw_ops.ResourceApplyGradientDescent(var=handle, alpha=rate, delta=gradient)

    def _push(self, names):
        ops, client = self.ops, self.client

        @function.Defun(tf.int64, func_name="push_" + hashlib.sha256(f"{client}{self.gated}".encode()).hexdigest()[:8])
        def push(token):
            expected = {}
            for server in sorted(set(self.ps)):
                with tf.device(server):
                    mine = [self._handle(number) for number, at in enumerate(self.ps) if at == server]
                    expected[server] = ops.tfsched_expect(token, mine, client=client, shared=False)
            with tf.device(self.home):
                ops.tfsched_ack(token, list(expected.values()))
                poison = ops.tfsched_take(token, T=tf.float32, key="poison", shape=[])
            before = []
            if self.gated:
                with tf.device(self.ps[0]):
                    before = _pass("updates")
            for number, name in enumerate(names):
                with tf.device(self.home):
                    gradient = ops.tfsched_take(token, T=tf.float32, key=name, shape=[self.width, self.width])
                with tf.device(self.ps[number]), tf.control_dependencies([expected[self.ps[number]]]):
                    rate = ops.tfsched_take(token, T=tf.float32, key=f"rate{number}", shape=[])
                    with tf.control_dependencies(before):
                        applied = self._apply(number, self._handle(number), rate, gradient, poison)
                    with tf.control_dependencies([applied]):
                        ops.tfsched_notify(token, self._handle(number))

        return push

    def step(self, number, **feeds):
        """One step; its loss as a hexadecimal number."""
        feed = {self.batch: feed_of(number, self.width), **{getattr(self, name): value for name, value in feeds.items()}}
        return float(self.session.run([self.loss, self.train], feed)[0]).hex()

    def digests(self):
        """Of each variable's bytes, after all updates."""
        if self.client is not None:
            self.session.run(self.drain)
        return [hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest() for value in self.session.run(self.values)]


def open_training(task, called="main", init=True, **arguments):
    """Builds a Training, which stays in this process as ``called``."""
    training = Training(task, **arguments)
    if init:
        training.session.run(training.inits)
    task.state[called] = training


def open_solo(task, port, called="solo", **arguments):
    """A second server in this process, of a cluster with nobody else in it, and a Training on it."""
    import tfsched

    spec = {"cluster": {"ps": [f"127.0.0.1:{port}"]}, "job": "ps", "index": 0}
    server = tfsched.Server(spec["cluster"], job_name="ps", task_index=0)
    solo = types.SimpleNamespace(spec=spec, target=server.target, server=server, state=task.state)
    task.state["solo server"] = server
    open_training(solo, called=called, **arguments)


def close(task, called="main"):
    """Closes the session."""
    task.state[called].session.close()


def steps(task, count, first=0, called="main", **feeds):
    """Steps with the given feeds; their losses."""
    return [task.state[called].step(number, **feeds) for number in range(first, first + count)]


def fetch(task, what, called="main"):
    """Runs one of the training's other ops."""
    training = task.state[called]
    training.session.run(getattr(training, what))


def digests(task, called="main"):
    """The variables, after all updates."""
    return task.state[called].digests()


def end_python(task):
    """Runs what Python runs at the end of a process; returns how long that took, in seconds."""
    began = time.monotonic()
    atexit._run_exitfuncs()
    return time.monotonic() - began


def native_drain(task, timeout_ms):
    """What tfsched_drain says, called while another thread of Python runs."""
    from tfsched.ops import library

    answers = []
    thread = threading.Thread(target=lambda: answers.append(library.c_api().tfsched_drain(timeout_ms)), daemon=True)
    thread.start()
    thread.join(timeout_ms / 1000 + 20)
    return answers


def is_a_servers_failure(_task, message):
    """Whether a ClusterCoordinator takes an UnavailableError that a worker reports for that of a parameter server."""
    # As the error comes from the worker's eager service.
    error = tf.errors.UnavailableError(None, None, f"{message}\nfrom remote target /job:worker/replica:0/task:0")
    return cluster_coordinator._is_ps_failure(error)
