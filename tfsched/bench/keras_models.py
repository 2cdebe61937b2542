"""The bench's models for Model.fit, with the layers of tf_keras or of Keras 3, and their samples."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfsched.bench.errors import BenchError
from tfsched.bench.models import Model


def library(strategy: bool) -> Any:
    """tf_keras, which trains under a strategy, or else Keras 3.

    Raises:
        BenchError: it is not installed.
    """
    name = "tf_keras" if strategy else "keras"
    try:
        if strategy:
            import tf_keras as found
        else:
            import keras as found
    except ImportError as error:
        raise BenchError(f"--loop fit needs the package {name}: pip install {name}, or use --loop custom") from error
    version = str(found.__version__)
    if not strategy and not version.startswith("3."):
        raise BenchError(f"--api parallel --loop fit needs Keras 3 and Keras is {version}: pip install 'keras>=3'")
    return found


def build(keras: Any, model: Model, seed: int) -> Any:
    """The model with its variables; the same values for the same seed.

    Raises:
        BenchError: the model has no form of layers.
    """
    if model.layers is None:
        raise BenchError(f"model {model.name!r} is not made of Keras layers: leave it out with --loop fit")
    keras.utils.set_random_seed(seed)
    return model.layers(keras)


def loss(keras: Any, model: Model) -> Any:
    """What is minimised: as in a custom loop, classes for images, and else the mean square of the outputs."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True) if model.is_classifier else "mse"


def samples(model: Model, count: int, seed: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Inputs and targets: [count, ...] each."""
    inputs = tf.random.stateless_uniform([count, *model.input_shape], [seed, 1])
    if model.is_classifier:
        return inputs, tf.zeros([count, *model.target_shape], tf.int32)
    return inputs, tf.zeros([count, *model.input_shape])
