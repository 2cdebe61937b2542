"""A custom loop as Horovod's users write it, in which only the import was changed.

python examples/horovod_style.py            two workers on this machine
TF_CONFIG=... python examples/horovod_style.py    one worker of a real cluster; all run this program
"""

import tensorflow as tf
from local_cluster import start_workers

import tfsched
import tfsched.parallel as hvd  # was: import horovod.tensorflow as hvd


def main():
    hvd.init()

    weights = [tf.Variable(tf.random.normal([256, 256]) * 0.06) for _ in range(4)]
    out = tf.Variable(tf.random.normal([256, 1]) * 0.06)
    variables = [*weights, out]
    rate = 0.03

    @tf.function
    def training_step(batch, first_batch):
        with tf.GradientTape() as tape:
            hidden = batch
            for matrix in weights:
                hidden = tf.nn.relu(hidden @ matrix)
            loss = tf.reduce_mean(tf.square(hidden @ out - batch[:, :1]))
        tape = hvd.DistributedGradientTape(tape)
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(rate * gradient)
        if first_batch:
            hvd.broadcast_variables(variables, root_rank=0)
        return hvd.allreduce(loss)

    for epoch in range(5):
        losses = [float(training_step(tf.random.normal([32, 256]), epoch == 0 and step == 0)) for step in range(40)]
        if hvd.rank() == 0:
            print(f"epoch {epoch} loss {sum(losses) / len(losses):.4f}")
    if hvd.rank() == 0:
        print(f"{tfsched.stats()['tasks']} transfers of this worker were ordered")


if __name__ == "__main__":
    start_workers()  # in the place of horovodrun
    main()
