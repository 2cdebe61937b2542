"""Records what the tests of the offline commands read: a trace and a RunMetadata of a real cluster, in a process of its own.

python record.py DIRECTORY
"""

import pathlib
import sys

import tensorflow as tf

import tfsched
from tfsched.bench.ports import free_port

tf1 = tf.compat.v1
LAYERS = 4


def main(directory: pathlib.Path) -> None:
    tf1.disable_eager_execution()
    cluster = {job: [f"127.0.0.1:{free_port()}"] for job in ("ps", "worker")}
    servers = [tfsched.Server(cluster, job_name=job, task_index=0) for job in cluster]
    with tf.device("/job:ps/task:0"):
        weights = [tf1.get_variable(f"w{i}", [64, 64], use_resource=True) for i in range(LAYERS)]
    with tf.device("/job:worker/task:0"):
        hidden = tf.ones([8, 64])
        for i, weight in enumerate(weights):
            hidden = tf.matmul(hidden, weight.read_value(), name=f"layer{i}")
        loss = tf.reduce_sum(hidden, name="loss")
    with tf1.Session(servers[1].target, config=tfsched.session_config()) as session:
        session.run(tf1.global_variables_initializer())
        session.run(loss)
        tfsched.trace_steps(session, loss, steps=2).save(str(directory / "trace.json.gz"))
        for name, partitions in (("metadata.pb", True), ("bare.pb", False)):
            options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE, output_partition_graphs=partitions)
            metadata = tf1.RunMetadata()
            session.run(loss, options=options, run_metadata=metadata)
            (directory / name).write_bytes(metadata.SerializeToString())


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
    sys.stdout.flush()
    import os

    os._exit(0)  # TensorFlow's servers cannot be stopped
