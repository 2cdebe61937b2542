"""What all scenarios share: configurations, models, sessions that outlive a request."""

import contextlib
import dataclasses
import os
import socket
import time
import typing

import tensorflow as tf

v1 = tf.compat.v1


def stats(task):
    """The counters of this process's scheduler."""
    import tfsched

    return tfsched.stats()


def transfers(task):
    """The trace of this process's scheduler."""
    import tfsched

    return tfsched.transfers()


def wait_until_sent(read=None, limit_s=30):
    """Returns once no update is under way, and nothing is queued or on the wire; ``read`` gives the tasks' counters."""
    fields = ("expectations", "queue_depth", "on_wire_bytes")
    until = time.monotonic() + limit_s
    while any(one[field] for one in (read() if read else [stats(None)]) for field in fields):
        if time.monotonic() > until:
            raise TimeoutError(f"not sent within {limit_s} s: {read() if read else stats(None)}")
        time.sleep(0.001)


def tcp_sockets():
    """This process's TCP sockets, as copies that the caller closes."""
    for name in os.listdir("/proc/self/fd"):
        try:
            copy = os.dup(int(name))
        except OSError:  # closed since
            continue
        try:
            one = socket.socket(fileno=copy)
        except OSError:  # no socket
            os.close(copy)
            continue
        if one.type == socket.SOCK_STREAM and one.family in (socket.AF_INET, socket.AF_INET6):
            yield one
        else:
            one.close()


def send_backlogs(task):
    """Of the connections that this process's server has accepted: the limits of unsent bytes, and the code points."""
    port = int(task.target.rpartition(":")[2])
    found = []
    for one in tcp_sockets():
        with one:
            listens = one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if one.getsockname()[1] == port and not listens:
                limit = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)
                found.append((limit, one.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) >> 2))
    return found


def session_config(task, options=None, filters=(), **fields):
    """A stock ConfigProto, or tfsched's if ``options`` (a dict, may be empty) is given."""
    base = v1.ConfigProto(**fields)
    base.device_filters.extend(filters)
    if options is None:
        return base
    import tfsched

    return tfsched.session_config(tfsched.Options(**options), base=base)


def here(task):
    """This task's device."""
    return f"/job:{task.spec['job']}/task:{task.spec['index']}"


def on_ps(task, device=None):
    """Variables on the parameter servers in turn, everything else on ``device`` or this task."""
    return v1.train.replica_device_setter(ps_tasks=len(task.spec["cluster"]["ps"]), worker_device=device or here(task))


def variable(name, shape, seed, use_resource=True):
    """A variable whose first value depends on nothing but ``seed``."""
    start = tf.random.stateless_normal(shape, seed=[seed, 7], stddev=0.1)
    return v1.get_variable(name, initializer=start, use_resource=use_resource)


@dataclasses.dataclass
class Model:
    """A graph of one's own and what a step may be asked for."""

    graph: tf.Graph
    fetches: dict[str, typing.Any]
    init: typing.Any = None
    session: typing.Any = None


def mlp(task, layers=8, width=256, use_resource=True, device=None):
    """A chain of layers, ``width`` * ``width`` * 4 bytes each, trained on a batch of 4.

    Fetches: "loss" runs forward only, "train" also updates and counts; "gated" is a training step that cannot end before
    "open_gate" was run; "steps" is the count.
    """
    with tf.Graph().as_default() as graph, v1.device(on_ps(task, device)):
        steps = v1.train.get_or_create_global_step()
        hidden = tf.random.stateless_normal([4, width], seed=[1, 2])
        for layer in range(layers):
            hidden = tf.tanh(hidden @ variable(f"w{layer}", [width, width], layer, use_resource))
        loss = tf.reduce_mean(tf.square(hidden - 1.0))
        train = v1.train.GradientDescentOptimizer(0.5).minimize(loss, global_step=steps)
        with tf.device("/job:ps/task:0"):
            gate = tf.queue.FIFOQueue(100, tf.int32, shapes=[[]], shared_name="gate")
            passed = gate.dequeue()
            open_gate = gate.enqueue(1)
        with tf.control_dependencies([train, passed]):
            gated = tf.identity(loss)
        with tf.control_dependencies([train]):
            trained = tf.identity(loss)
        fetches = {"loss": loss, "train": trained, "gated": gated, "open_gate": open_gate, "steps": steps}
        return Model(graph, fetches, v1.global_variables_initializer())


def open_session(task, name="main", model="mlp", init=True, options=None, filters=(), fields=None, target=None, **size):
    """Builds a model and a session for it, which stays in this process as ``name``."""
    built = globals()[model](task, **size)
    config = session_config(task, options, filters, **(fields or {}))
    built.session = v1.Session(target or task.target, graph=built.graph, config=config)
    if init:
        built.session.run(built.init)
    task.state[name] = built


def run(task, fetch="train", name="main", count=1, timeout_ms=None):
    """Runs ``count`` steps; returns what the fetch gave, as hexadecimal floats so that no bit is lost."""
    model = task.state[name]
    run_options = v1.RunOptions(timeout_in_ms=timeout_ms) if timeout_ms else None
    values = [model.session.run(model.fetches[fetch], options=run_options) for _ in range(count)]
    return [float(value).hex() if value is not None else None for value in values]


def close_session(task, name="main"):
    """Closes the session."""
    task.state[name].session.close()


@contextlib.contextmanager
def control_flow(version):
    """Builds tf.cond and tf.while_loop as Switch/Merge (1) or as functional ops (2)."""
    before = v1.control_flow_v2_enabled()
    (v1.enable_control_flow_v2 if version == 2 else v1.disable_control_flow_v2)()
    try:
        yield
    finally:
        (v1.enable_control_flow_v2 if before else v1.disable_control_flow_v2)()
