"""TensorFlow 2: tf_keras' Model.fit under ParameterServerStrategy, with scheduled transfers. Keras 3 has no such support.

python examples/keras_fit.py            a parameter server, a worker and the coordinator on this machine
TF_CONFIG=... python examples/keras_fit.py    one task of a real cluster; the chief coordinates
"""

import tensorflow as tf
import tf_keras
from local_cluster import join_or_start, leave

import tfsched


def dataset(context):
    """What each worker reads."""
    del context
    features = tf.random.normal([1024, 64])
    return tf.data.Dataset.from_tensor_slices((features, features[:, :1])).shuffle(1024).batch(32).repeat()


def main():
    cluster, index = join_or_start()
    resolver = tfsched.cluster_resolver(cluster, "chief", index)  # instead of SimpleClusterResolver
    tfsched.enable()

    strategy = tf.distribute.ParameterServerStrategy(resolver)
    with strategy.scope():
        layers = [tf_keras.layers.Dense(64, activation="relu") for _ in range(4)]
        model = tf_keras.Sequential([tf_keras.Input([64]), *layers, tf_keras.layers.Dense(1)])
        model.compile(tf_keras.optimizers.Adam(0.003), loss="mse")
    data = tf_keras.utils.experimental.DatasetCreator(dataset)
    history = model.fit(data, epochs=3, steps_per_epoch=40, verbose=2)
    print(f"trained: loss {history.history['loss'][-1]:.4f}")
    print(f"{tfsched.stats('/job:ps/task:0')['tasks']} transfers of the parameter server were ordered")


if __name__ == "__main__":
    main()
    leave()
