"""As TensorFlow 1's guide "Distributed TensorFlow": a server, replica_device_setter and a MonitoredTrainingSession."""

import json
import os

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.enable_resource_variables()


def main():
    tf_config = json.loads(os.environ["TF_CONFIG"])
    cluster = tf.train.ClusterSpec(tf_config["cluster"])
    job, index = tf_config["task"]["type"], tf_config["task"]["index"]
    server = tf.train.Server(cluster, job_name=job, task_index=index)
    if job == "ps":
        server.join()
    with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{index}", cluster=cluster)):
        x = tf.placeholder(tf.float32, [None, 64])
        hidden = x
        for layer in range(3):
            hidden = tf.nn.relu(tf.matmul(hidden, tf.get_variable(f"w{layer}", [64, 64])))
        loss = tf.reduce_mean(tf.square(tf.matmul(hidden, tf.get_variable("out", [64, 1])) - x[:, :1]))
        global_step = tf.train.get_or_create_global_step()
        train_op = tf.train.GradientDescentOptimizer(0.02).minimize(loss, global_step=global_step)
    hooks = [tf.train.StopAtStepHook(last_step=20)]
    batch = np.random.RandomState(0).randn(32, 64)
    losses = []
    with tf.train.MonitoredTrainingSession(
        master=server.target, is_chief=index == 0, hooks=hooks, save_checkpoint_secs=None, save_summaries_secs=None
    ) as session:
        while not session.should_stop():
            losses.append(session.run([train_op, loss], {x: batch})[1])
    print(f"{len(losses)} steps, loss {losses[0]:.4f} {losses[-1]:.4f}")


main()
