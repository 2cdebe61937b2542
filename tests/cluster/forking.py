"""A program that looks at tfsched's counters and then forks its tasks, as launchers with a fork server do."""

import json
import multiprocessing
import sys

import tensorflow as tf

import tfsched
from tfsched.bench.ports import free_ports

STEPS = 3


def serve(cluster, ready):
    server = tfsched.Server(cluster, job_name="ps", task_index=0)
    ready.set()
    server.join()


def train(cluster, ready, answers):
    server = tfsched.Server(cluster, job_name="worker", task_index=0)
    ready.wait(60)
    tf1 = tf.compat.v1
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            variables = [tf1.get_variable(f"w{i}", [64, 64], use_resource=True) for i in range(4)]
        with tf.device("/job:worker/task:0"):
            loss = tf.add_n([tf.reduce_sum(tf.square(variable)) for variable in variables])
            step = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
        options = tfsched.Options(policy="bytescheduler", barrier=False)
        with tf1.Session(server.target, config=tfsched.session_config(options)) as session:
            session.run(tf1.global_variables_initializer())
            for _ in range(STEPS):
                session.run(step)
            tfsched.drain(session, timeout_s=30)
            answers.put({job: tfsched.stats(session, f"/job:{job}/task:0") for job in cluster})


def main():
    before = tfsched.stats()
    context = multiprocessing.get_context("fork")
    ports = free_ports(2)
    cluster = {"ps": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{ports[1]}"]}
    ready, answers = context.Event(), context.Queue()
    tasks = [
        context.Process(target=serve, args=(cluster, ready)),
        context.Process(target=train, args=(cluster, ready, answers)),
    ]
    for task in tasks:
        task.start()
    try:
        print(json.dumps({"before": before["tasks"], **{job: one["tasks"] for job, one in answers.get(timeout=60).items()}}))
    finally:
        for task in tasks:
            task.kill()
            task.join(20)
    return 0


if __name__ == "__main__":
    sys.exit(main())
