"""A training that finds its own settings while it runs: tfsched.autotune around the steps of a session.

python examples/autotune.py            a parameter server and a worker on this machine, over a link that is made slow
TF_CONFIG=... python examples/autotune.py    one task of a real cluster; the first worker trains
"""

import os
import time

if "TF_CONFIG" not in os.environ:
    os.environ.setdefault("TFSCHED_EMULATED_BPS", "500e6")  # read when a server starts

import numpy as np
import tensorflow as tf
from local_cluster import join_or_start, leave

import tfsched

v1 = tf.compat.v1


def main():
    cluster, index = join_or_start(chief="worker")
    server = tfsched.Server(cluster, job_name="worker", task_index=index)
    # As stock TensorFlow sends: in any order, and as much at a time as is there.
    options = tfsched.Options(policy="fifo")
    config = tfsched.session_config(options)

    with tf.Graph().as_default(), v1.device(v1.train.replica_device_setter(cluster=cluster)):
        features, target = v1.placeholder(tf.float32, [None, 256]), v1.placeholder(tf.float32, [None, 1])
        hidden = features
        for layer in range(6):
            hidden = tf.nn.relu(tf.matmul(hidden, v1.get_variable(f"w{layer}", [256, 256], use_resource=True)))
        output = tf.matmul(hidden, v1.get_variable("out", [256, 1], use_resource=True))
        loss = tf.reduce_mean(tf.square(output - target))
        train = v1.train.AdamOptimizer(0.001).minimize(loss)
        initialize = v1.global_variables_initializer()

        with v1.Session(server.target, config=config) as session:
            session.run(initialize)
            tuner = tfsched.autotune(session, samples=40)
            random = np.random.RandomState(0)
            for step in range(150):
                batch = random.randn(256, 256).astype(np.float32)
                began_s = time.monotonic()
                with tuner.step():
                    now, _ = session.run([loss, train], {features: batch, target: batch[:, :1]})
                if step % 25 == 0 or step == 149:
                    print(f"step {step:3} loss {now:.4f}, {time.monotonic() - began_s:.4f} s, tuner {tuner.state}")
            tuner.close()
            print(tuner.decision.reason if tuner.decision else "The training was too short for a decision.")
            ordered = tfsched.stats(session, "/job:ps/task:0")["tasks"]
            print(f"{ordered} transfers of the parameter server were ordered")


if __name__ == "__main__":
    main()
    leave()
