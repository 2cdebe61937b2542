"""A model of one's own for the bench.

tfsched bench --model examples/bench_model.py:build --settings vanilla,tio --steps 10

A function of the Keras library (tf_keras, or Keras 3 with --api parallel) returns a Keras model: one input of a known shape,
one output of logits. The bench draws inputs from 0 to 1, takes class 0 for the truth and trains by gradient descent.
"""


def build(keras):
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((64, 64, 3)),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.Conv2D(64, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(512, activation="relu"),
            layers.Dense(100),
        ]
    )
