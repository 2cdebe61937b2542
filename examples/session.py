"""TensorFlow 1's API: a session that trains a small network, with scheduled transfers, across the step's barrier.

python examples/session.py            a parameter server and a worker on this machine
TF_CONFIG=... python examples/session.py    one task of a real cluster; the first worker trains
"""

import numpy as np
import tensorflow as tf
from local_cluster import join_or_start, leave

import tfsched

v1 = tf.compat.v1


def main():
    cluster, index = join_or_start(chief="worker")
    server = tfsched.Server(cluster, job_name="worker", task_index=index)  # instead of tf.distribute.Server
    options = tfsched.Options(barrier=False)
    config = tfsched.session_config(options)  # instead of None

    with tf.Graph().as_default(), v1.device(v1.train.replica_device_setter(cluster=cluster)):
        features, target = v1.placeholder(tf.float32, [None, 64]), v1.placeholder(tf.float32, [None, 1])
        hidden = features
        for layer in range(4):
            weights = v1.get_variable(f"w{layer}", [64, 64], use_resource=True)
            hidden = tf.nn.relu(tf.matmul(hidden, weights))
        output = tf.matmul(hidden, v1.get_variable("out", [64, 1], use_resource=True))
        loss = tf.reduce_mean(tf.square(output - target))
        train = v1.train.AdamOptimizer(0.003).minimize(loss)
        initialize = v1.global_variables_initializer()

        with v1.Session(server.target, config=config) as session:
            session.run(initialize)
            random = np.random.RandomState(0)
            for step in range(100):
                batch = random.randn(32, 64).astype(np.float32)
                now, _ = session.run([loss, train], {features: batch, target: batch[:, :1]})
                if step % 20 == 0 or step == 99:
                    print(f"step {step:3} loss {now:.4f}")
            tfsched.drain(session)  # every update is applied
            ordered = tfsched.stats(session, "/job:ps/task:0")["tasks"]
            print(f"{ordered} transfers of the parameter server were ordered")


if __name__ == "__main__":
    main()
    leave()
