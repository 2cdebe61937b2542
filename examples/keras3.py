"""Keras 3: Model.fit on several workers. To a program for one process three lines are added.

python examples/keras3.py            two workers on this machine
TF_CONFIG=... python examples/keras3.py    one worker of a real cluster; all run this program
"""

import keras
import tensorflow as tf
from local_cluster import start_workers

import tfsched
import tfsched.parallel


def dataset(rank):
    """Each worker has rows of its own."""
    features = tf.random.stateless_normal([1024, 64], [7, rank])
    return tf.data.Dataset.from_tensor_slices((features, features[:, :1])).shuffle(1024).batch(32)


def main():
    tfsched.parallel.init()  # added: joins the other workers
    rank = tfsched.parallel.rank()

    model = keras.Sequential([keras.layers.Input([64]), *[keras.layers.Dense(128, activation="relu") for _ in range(4)]])
    model.add(keras.layers.Dense(1))
    optimizer = keras.optimizers.Adam(0.002)
    optimizer = tfsched.parallel.DistributedOptimizer(optimizer)  # added: averages the workers' gradients
    model.compile(optimizer, loss="mse")
    model.fit(
        dataset(rank),
        epochs=4,
        verbose=2 if rank == 0 else 0,
        callbacks=[tfsched.parallel.callbacks.BroadcastGlobalVariablesCallback()],  # added: all begin with equal weights
    )
    if rank == 0:
        stats = tfsched.stats()
        print(f"{stats['all_reduces']} gradients were exchanged; {stats['tasks']} transfers of this worker were ordered")


if __name__ == "__main__":
    start_workers()
    main()
