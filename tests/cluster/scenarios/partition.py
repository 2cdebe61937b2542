"""Training that goes on in another session with chunks of another size."""

import hashlib

import numpy as np
import tensorflow as tf

from . import common
from .common import v1


def train(task, sizes, steps, init=True, use_resource=True, policy="tictac"):
    """Trains the same variables in one session after another, ``steps`` steps each.

    Args:
      sizes: for each session its partition_bytes; None for a session of stock TensorFlow.
      init: whether to start from the initial values, or from what the parameter servers hold.
      policy: of all sessions.

    Returns:
      {"losses": [hexadecimal], "variables": {name: digest of its bytes}, "reports": the pass's last words in each session}.
    """
    losses, reports = [], []
    with tf.Graph().as_default() as graph, v1.device(common.on_ps(task)):
        batch = v1.placeholder(tf.float32, [4, 96])
        hidden = batch
        for layer in range(6):
            weight = common.variable(f"w{layer}", [96, 96], layer, use_resource)
            bias = v1.get_variable(f"b{layer}", [96], initializer=v1.zeros_initializer(), use_resource=use_resource)
            hidden = tf.tanh(hidden @ weight + bias)
        loss = tf.reduce_mean(tf.square(hidden - 0.5))
        train_op = v1.train.AdamOptimizer(0.01).minimize(loss)
        variables = v1.global_variables()
        initializer = v1.global_variables_initializer()
        draw = np.random.RandomState(3)
        feeds = [draw.randn(4, 96).astype(np.float32) for _ in range(steps * len(sizes))]
    for number, size in enumerate(sizes):
        options = {"partition_bytes": size, "policy": policy, "credit_bytes": 20_000, "strict": True}
        config = common.session_config(task, None if size is None else options)
        with v1.Session(task.target, graph=graph, config=config) as session:
            if init and number == 0:
                session.run(initializer)
            for value in feeds[number * steps : (number + 1) * steps]:
                losses.append(float(session.run([loss, train_op], {batch: value})[0]).hex())
            reports.append(_report())
            values = session.run({variable.name: variable for variable in variables})
    digests = {name: hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest() for name, value in values.items()}
    return {"losses": losses, "variables": digests, "reports": reports}


def _report():
    import sys

    if "tfsched" not in sys.modules:
        return ""
    from tfsched.grappler.bridge import pass_stats

    return pass_stats().last_report
