"""The models behind `--model`: toy models of the TicTac paper, an MLP, image networks and a Transformer."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfsched.bench import own_models, transformer
from tfsched.bench.errors import BenchError

if TYPE_CHECKING:
    import tensorflow as tf

    LossFunction = Callable[[tf.Tensor, bool], tf.Tensor]


@dataclasses.dataclass
class Network:
    """A model whose variables exist; `loss(inputs, training)` adds one tower on them.

    Attributes:
        variables: all variables, in the order of creation.
        trainable: those that get gradients.
        loss: adds the model's operations for these inputs and returns the scalar loss.
        updates: operations (moving averages) that training on these inputs has to run as well.
    """

    variables: list[tf.Variable]
    trainable: list[tf.Variable]
    loss: LossFunction
    updates: Callable[[tf.Tensor], list[tf.Operation]] = lambda inputs: []


@dataclasses.dataclass(frozen=True)
class Model:
    """A registered model: `make()` creates its variables under the caller's device scope.

    Attributes:
        name: what the user writes.
        summary: one line for help texts.
        input_shape: shape of one sample.
        make: builds the network.
        layers: builds it as a Keras model of the given library, tf_keras or Keras 3, for Model.fit; None where it is not
            made of layers.
        is_classifier: what it puts out are logits.
        target_shape: of a classifier's targets, one sample's: () is one class a sample.
    """

    name: str
    summary: str
    input_shape: tuple[int, ...]
    make: Callable[[], Network]
    layers: Callable[[Any], Any] | None = None
    is_classifier: bool = False
    target_shape: tuple[int, ...] = ()


PHASES = ("forward", "train")

MODELS: dict[str, Model] = {}


def register_model(
    name: str, summary: str, input_shape: tuple[int, ...]
) -> Callable[[Callable[[], Network]], Callable[[], Network]]:
    """Registers the decorated function as the maker of a model."""

    def register(make: Callable[[], Network]) -> Callable[[], Network]:
        MODELS[name] = Model(name, summary, input_shape, make)
        return make

    return register


# For benchmarks that need a model of a given size: as many bytes as wanted, in as many transfers.
_SIZED = re.compile(r"^mlp(?P<layers>[1-9][0-9]{0,3})x(?P<width>[1-9][0-9]{0,3})$")


def find_model(name: str) -> Model:
    """The model of that name; "mlp8x500" is a perceptron of 8 layers, 500x500 each; "my_model.py:build" the user's own.

    Raises:
        BenchError: there is none.
    """
    if own_models.is_own(name):
        return _own(name)
    if name in MODELS:
        return MODELS[name]
    sized = _SIZED.match(name)
    if sized is None:
        known = f"{', '.join(MODELS)}, or mlpLxW for L layers of W x W"
        raise BenchError(f"model {name!r} is unknown: choose from {known}; a model of your own is {own_models.FORM}")
    layers, width = int(sized["layers"]), int(sized["width"])
    return _perceptron(name, f"{layers}-layer perceptron, {width}x{width} each", layers, width)


def _weights(count: int, width: int) -> list[tf.Variable]:
    import tensorflow as tf

    return [tf.compat.v1.get_variable(f"layer{index:02d}", [width, width], use_resource=True) for index in range(count)]


def _chain(count: int, width: int) -> Network:
    import tensorflow as tf

    weights = _weights(count, width)

    def loss(inputs: tf.Tensor, training: bool) -> tf.Tensor:
        del training
        hidden = inputs
        for index, weight in enumerate(weights):
            hidden = tf.nn.relu(tf.linalg.matmul(hidden, weight, name=f"dense{index:02d}"))
        return tf.reduce_mean(hidden * hidden)

    return Network(weights, weights, loss)


def _dense(keras: Any, count: int, width: int) -> Any:
    made = [keras.layers.Dense(width, activation="relu", use_bias=False) for _ in range(count)]
    return keras.Sequential([keras.layers.Input((width,)), *made])


def _perceptron(name: str, summary: str, count: int, width: int) -> Model:
    return Model(name, summary, (width,), lambda: _chain(count, width), lambda keras: _dense(keras, count, width))


for _one in (
    _perceptron("toy", "3 layers of 256 kB in sequence, for tests", 3, 256),
    _perceptron("seq32", "TicTac's Seq-32: 32 layers in sequence, 98 MB", 32, 875),
):
    MODELS[_one.name] = _one


@register_model("par32", "TicTac's Par-32: 32 concurrent layers, summed, 98 MB", (875,))
def _par32() -> Network:
    import tensorflow as tf

    weights = _weights(32, 875)

    def loss(inputs: tf.Tensor, training: bool) -> tf.Tensor:
        del training
        # Each layer is reduced on its own, so nothing but the last sum waits for two layers.
        parts = []
        for index, weight in enumerate(weights):
            hidden = tf.nn.relu(tf.linalg.matmul(inputs, weight, name=f"dense{index:02d}"))
            parts.append(tf.reduce_mean(hidden * hidden))
        return tf.add_n(parts)

    return Network(weights, weights, loss)


MODELS["mlp24"] = _perceptron("mlp24", "24-layer perceptron, 1000x1000 each, 96 MB", 24, 1000)


def _keras() -> Any:
    try:
        import tf_keras
    except ImportError as error:
        raise BenchError(
            "image models and models of one's own need the package tf_keras of TensorFlow's own minor version: "
            "pip install tf_keras"
        ) from error
    return tf_keras


def _from_keras(model: Any) -> Network:
    """Wraps a Keras model that ends in logits."""
    import tensorflow as tf

    def loss(inputs: tf.Tensor, training: bool) -> tf.Tensor:
        logits = model(inputs, training=training)
        labels = tf.zeros(tf.shape(logits)[:-1], tf.int32)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    def updates(inputs: tf.Tensor) -> list[tf.Operation]:
        return list(model.get_updates_for([inputs]))

    return Network(list(model.variables), list(model.trainable_variables), loss, updates)


@functools.lru_cache(maxsize=8)
def _own(name: str) -> Model:
    layers = own_models.load_builder(name)
    input_shape, target_shape = own_models.shapes(name, _keras())

    def make() -> Network:
        return _from_keras(layers(_keras()))

    return Model(name, "a model of one's own", input_shape, make, layers, is_classifier=True, target_shape=target_shape)


def _register_images(name: str, summary: str, size: int, layers: Callable[[Any], Any]) -> None:
    MODELS[name] = Model(name, summary, (size, size, 3), lambda: _from_keras(layers(_keras())), layers, is_classifier=True)


def _alexnet(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((227, 227, 3)),
            layers.Conv2D(96, 11, strides=4, activation="relu", name="conv1"),
            layers.MaxPooling2D(3, 2),
            layers.Conv2D(256, 5, padding="same", activation="relu", name="conv2"),
            layers.MaxPooling2D(3, 2),
            layers.Conv2D(384, 3, padding="same", activation="relu", name="conv3"),
            layers.Conv2D(384, 3, padding="same", activation="relu", name="conv4"),
            layers.Conv2D(256, 3, padding="same", activation="relu", name="conv5"),
            layers.MaxPooling2D(3, 2),
            layers.Flatten(),
            layers.Dense(4096, activation="relu", name="fc6"),
            layers.Dropout(0.5),
            layers.Dense(4096, activation="relu", name="fc7"),
            layers.Dropout(0.5),
            layers.Dense(1000, name="fc8"),
        ]
    )


def _application(name: str) -> Callable[[Any], Any]:
    return lambda keras: getattr(keras.applications, name)(weights=None, classifier_activation=None)


_register_images("alexnet", "AlexNet (Krizhevsky et al.), one tower, 250 MB", 227, _alexnet)
_register_images("vgg16", "VGG16, 553 MB", 224, _application("VGG16"))
_register_images("inception_v3", "InceptionV3, 95 MB", 299, _application("InceptionV3"))
_register_images("resnet50", "ResNet50, 102 MB", 224, _application("ResNet50"))
_register_images("resnet152", "ResNet152, 241 MB", 224, _application("ResNet152"))

MODELS["transformer"] = Model(
    "transformer",
    "Transformer (Vaswani et al.), base, without embeddings, 240 MB",
    (transformer.LENGTH, transformer.WIDTH),
    lambda: _from_keras(transformer.layers_of(_keras())),
    transformer.layers_of,
    is_classifier=True,
    target_shape=(transformer.LENGTH,),
)
