"""As TensorFlow's tutorial "Multi-worker training with Keras": Model.fit under MultiWorkerMirroredStrategy."""

import json
import os

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf
import tf_keras as keras

tf_config = json.loads(os.environ["TF_CONFIG"])
num_workers = len(tf_config["cluster"]["worker"])
per_worker_batch_size = 16
global_batch_size = per_worker_batch_size * num_workers

strategy = tf.distribute.MultiWorkerMirroredStrategy()


def dataset(batch_size):
    x = np.random.RandomState(0).rand(256, 32).astype(np.float32)
    y = (x.sum(axis=1) > 16).astype(np.int64)
    return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(batch_size)


def build_and_compile_model():
    model = keras.Sequential(
        [
            keras.layers.Input((32,)),
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dense(2),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(learning_rate=0.1),
        metrics=["accuracy"],
    )
    return model


with strategy.scope():
    keras.utils.set_random_seed(1)
    multi_worker_model = build_and_compile_model()

history = multi_worker_model.fit(dataset(global_batch_size), epochs=2, steps_per_epoch=8, verbose=2)
losses = history.history["loss"]
print(f"worker {tf_config['task']['index']} of {num_workers}: loss {losses[0]:.4f} {losses[-1]:.4f}")
