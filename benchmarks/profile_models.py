"""The models of the profiles (make_profiles.py): those of tf_keras, and what it does not have, built from the papers."""

from __future__ import annotations

import math
from collections.abc import Callable

import tf_keras
from tf_keras import layers

Rows = list[tuple[str, int, int]]


def size_of(weight) -> int:
    """Bytes of a tensor."""
    return math.prod(weight.shape) * weight.dtype.size


def conv(x, filters: int, size, strides=1, name: str = "", padding: str = "same", scale: bool = False):
    """Convolution without bias, batch normalisation (with `scale`, gamma as well as beta), ReLU."""
    x = layers.Conv2D(filters, size, strides, padding, use_bias=False, name=f"{name}/conv")(x)
    x = layers.BatchNormalization(scale=scale, name=f"{name}/bn")(x)
    return layers.ReLU(name=f"{name}/relu")(x)


def alexnet_v2():
    """AlexNet of "One weird trick": a single tower, with 1,001 classes as in TensorFlow's model library."""
    x = start = layers.Input((224, 224, 3))
    x = layers.Conv2D(64, 11, 4, "valid", activation="relu", name="conv1")(x)
    x = layers.MaxPooling2D(3, 2)(x)
    x = layers.Conv2D(192, 5, padding="same", activation="relu", name="conv2")(x)
    x = layers.MaxPooling2D(3, 2)(x)
    x = layers.Conv2D(384, 3, padding="same", activation="relu", name="conv3")(x)
    x = layers.Conv2D(384, 3, padding="same", activation="relu", name="conv4")(x)
    x = layers.Conv2D(256, 3, padding="same", activation="relu", name="conv5")(x)
    x = layers.MaxPooling2D(3, 2)(x)
    x = layers.Conv2D(4096, 5, padding="valid", activation="relu", name="fc6")(x)
    x = layers.Conv2D(4096, 1, activation="relu", name="fc7")(x)
    x = layers.Conv2D(1001, 1, name="fc8")(x)
    return tf_keras.Model(start, x)


def inception_v1():
    """GoogLeNet with batch normalisation."""
    x = start = layers.Input((224, 224, 3))
    x = conv(x, 64, 7, 2, "1a")
    x = layers.MaxPooling2D(3, 2, "same")(x)
    x = conv(conv(x, 64, 1, 1, "2b"), 192, 3, 1, "2c")
    x = layers.MaxPooling2D(3, 2, "same")(x)
    widths = {
        "3b": (64, 96, 128, 16, 32, 32), "3c": (128, 128, 192, 32, 96, 64), "4b": (192, 96, 208, 16, 48, 64),
        "4c": (160, 112, 224, 24, 64, 64), "4d": (128, 128, 256, 24, 64, 64), "4e": (112, 144, 288, 32, 64, 64),
        "4f": (256, 160, 320, 32, 128, 128), "5b": (256, 160, 320, 32, 128, 128), "5c": (384, 192, 384, 48, 128, 128),
    }  # fmt: skip
    for name, (a, b1, b2, c1, c2, d) in widths.items():
        if name in ("4b", "5b"):
            x = layers.MaxPooling2D(3 if name == "4b" else 2, 2, "same")(x)
        branches = [
            conv(x, a, 1, 1, f"{name}/0a"),
            conv(conv(x, b1, 1, 1, f"{name}/1a"), b2, 3, 1, f"{name}/1b"),
            conv(conv(x, c1, 1, 1, f"{name}/2a"), c2, 3, 1, f"{name}/2b"),
            conv(layers.MaxPooling2D(3, 1, "same")(x), d, 1, 1, f"{name}/3b"),
        ]
        x = layers.Concatenate()(branches)
    x = layers.AveragePooling2D(7, 1)(x)
    return tf_keras.Model(start, layers.Conv2D(1001, 1, name="logits")(x))


def inception_v2():
    """BN-Inception, with the separable first convolution of TensorFlow's model library."""
    x = start = layers.Input((224, 224, 3))
    x = layers.SeparableConv2D(64, 7, 2, "same", depth_multiplier=8, use_bias=False, name="1a/conv")(x)
    x = layers.ReLU()(layers.BatchNormalization(scale=False, name="1a/bn")(x))
    x = layers.MaxPooling2D(3, 2, "same")(x)
    x = conv(conv(x, 64, 1, 1, "2b"), 192, 3, 1, "2c")
    x = layers.MaxPooling2D(3, 2, "same")(x)
    # The widths of the four branches; without the first and the last, the block halves the image.
    widths = {
        "3b": (64, (64, 64), (64, 96, 96), 32), "3c": (64, (64, 96), (64, 96, 96), 64),
        "4a": (0, (128, 160), (64, 96, 96), 0), "4b": (224, (64, 96), (96, 128, 128), 128),
        "4c": (192, (96, 128), (96, 128, 128), 128), "4d": (160, (128, 160), (128, 160, 160), 96),
        "4e": (96, (128, 192), (160, 192, 192), 96), "5a": (0, (128, 192), (192, 256, 256), 0),
        "5b": (352, (192, 320), (160, 224, 224), 128), "5c": (352, (192, 320), (192, 224, 224), 128),
    }  # fmt: skip
    for name, (a, b, c, d) in widths.items():
        strides = 1 if a else 2
        branches = [conv(x, a, 1, 1, f"{name}/0a")] if a else []
        branches.append(conv(conv(x, b[0], 1, 1, f"{name}/1a"), b[1], 3, strides, f"{name}/1b"))
        y = conv(conv(x, c[0], 1, 1, f"{name}/2a"), c[1], 3, 1, f"{name}/2b")
        branches.append(conv(y, c[2], 3, strides, f"{name}/2c"))
        if d:
            pool = (layers.MaxPooling2D if name == "5c" else layers.AveragePooling2D)(3, 1, "same")(x)
            branches.append(conv(pool, d, 1, 1, f"{name}/3b"))
        else:
            branches.append(layers.MaxPooling2D(3, 2, "same")(x))
        x = layers.Concatenate()(branches)
    x = layers.AveragePooling2D(7, 1)(x)
    return tf_keras.Model(start, layers.Conv2D(1001, 1, name="logits")(x))


def _basic_v1(x, filters: int, strides: int, name: str):
    short = x
    if strides > 1:
        short = layers.Conv2D(filters, 1, strides, use_bias=False, name=f"{name}/short/conv")(x)
        short = layers.BatchNormalization(name=f"{name}/short/bn")(short)
    x = conv(x, filters, 3, strides, f"{name}/1", scale=True)
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False, name=f"{name}/2/conv")(x)
    x = layers.BatchNormalization(name=f"{name}/2/bn")(x)
    return layers.ReLU()(layers.Add()([x, short]))


def _basic_v2(x, filters: int, strides: int, name: str):
    before = layers.ReLU()(layers.BatchNormalization(name=f"{name}/1/bn")(x))
    short = x
    if strides > 1:
        short = layers.Conv2D(filters, 1, strides, use_bias=False, name=f"{name}/short/conv")(before)
    x = layers.Conv2D(filters, 3, strides, "same", use_bias=False, name=f"{name}/1/conv")(before)
    x = layers.ReLU()(layers.BatchNormalization(name=f"{name}/2/bn")(x))
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False, name=f"{name}/2/conv")(x)
    return layers.Add()([x, short])


def _resnet18(block, after: bool):
    x = start = layers.Input((224, 224, 3))
    first = layers.Conv2D(64, 7, 2, "same", use_bias=False, name="conv1")
    x = first(x) if after else conv(x, 64, 7, 2, "conv1", scale=True)
    x = layers.MaxPooling2D(3, 2, "same")(x)
    for stage, filters in enumerate((64, 128, 256, 512), 1):
        for number in (1, 2):
            x = block(x, filters, 2 if stage > 1 and number == 1 else 1, f"stage{stage}/block{number}")
    if after:
        x = layers.ReLU()(layers.BatchNormalization(name="post/bn")(x))
    x = layers.GlobalAveragePooling2D()(x)
    return tf_keras.Model(start, layers.Dense(1000, name="predictions")(x))


def resnet18():
    """ResNet-18 with basic blocks (He et al., 2015)."""
    return _resnet18(_basic_v1, after=False)


def resnet18_v2():
    """ResNet-18 with normalisation and activation before each convolution (He et al., 2016)."""
    return _resnet18(_basic_v2, after=True)


# The vocabulary with which the Transformer has the 91.8 million parameters of PACE's Table II; its 164 tensors follow from
# its structure: one matrix for query, key and value of a layer's own attention, a normalisation before each part.
VOCABULARY = 31_030
WIDTH, INNER, DEPTH, SENTENCE = 512, 2048, 6, 32


def transformer() -> Rows:
    """Transformer (base): 6 + 6 layers, 512 wide, own embeddings for source, target and output; a sample is one token."""
    rows: Rows = []

    def dense(name: str, inputs: int, units: int, bias: bool) -> None:
        layer = layers.Dense(units, use_bias=bias, name=name)
        layer.build((None, inputs))
        for weight in layer.trainable_weights:
            tensor = weight.name.split(":")[0].rsplit("/", 1)[-1]
            matrix = len(weight.shape) == 2
            rows.append((f"{name}/{tensor}", 2 * inputs * units if matrix else units, size_of(weight)))

    def other(name: str, layer, shape, flops: int) -> None:
        layer.build(shape)
        for position, weight in enumerate(layer.trainable_weights):
            tensor = weight.name.split(":")[0].rsplit("/", 1)[-1]
            rows.append((f"{name}/{tensor}", 0 if position else flops, size_of(weight)))

    def norm(name: str) -> None:
        other(name, layers.LayerNormalization(), (None, WIDTH), 8 * WIDTH)

    def attend(name: str) -> None:
        # Scores and weighted values of one token against a sentence, counted with the matrix behind them.
        last, flops, size = rows.pop()
        rows.append((last, flops + 4 * SENTENCE * WIDTH, size))

    def inner(name: str) -> None:
        norm(f"{name}/inner/norm")
        dense(f"{name}/inner/1", WIDTH, INNER, True)
        dense(f"{name}/inner/2", INNER, WIDTH, True)

    def own(name: str) -> None:
        norm(f"{name}/self/norm")
        dense(f"{name}/self/qkv", WIDTH, 3 * WIDTH, False)
        dense(f"{name}/self/out", WIDTH, WIDTH, False)
        attend(name)

    other("source/embedding", layers.Embedding(VOCABULARY, WIDTH), (None,), WIDTH)
    for number in range(DEPTH):
        own(f"encoder{number}")
        inner(f"encoder{number}")
    norm("encoder/norm")
    other("target/embedding", layers.Embedding(VOCABULARY, WIDTH), (None,), WIDTH)
    for number in range(DEPTH):
        own(f"decoder{number}")
        norm(f"decoder{number}/source/norm")
        for part in ("query", "key", "value", "out"):
            dense(f"decoder{number}/source/{part}", WIDTH, WIDTH, False)
        attend(f"decoder{number}")
        inner(f"decoder{number}")
    norm("decoder/norm")
    dense("output", WIDTH, VOCABULARY, True)
    return rows


def perceptron(count: int, width: int) -> Callable[[], Rows]:
    """The bench's chains of square layers without bias."""

    def make() -> Rows:
        return [(f"layer{index:02d}", 2 * width * width + width, 4 * width * width) for index in range(count)]

    return make


def application(name: str) -> Callable[[], tf_keras.Model]:
    return lambda: getattr(tf_keras.applications, name)(weights=None)


MODELS: dict[str, Callable] = {
    "alexnet_v2": alexnet_v2,
    "inception_v1": inception_v1,
    "inception_v2": inception_v2,
    "inception_v3": application("InceptionV3"),
    "mlp24": perceptron(24, 1000),
    "resnet18": resnet18,
    "resnet18_v2": resnet18_v2,
    "resnet50": application("ResNet50"),
    "resnet50_v2": application("ResNet50V2"),
    "resnet101": application("ResNet101"),
    "resnet101_v2": application("ResNet101V2"),
    "resnet152": application("ResNet152"),
    "resnet152_v2": application("ResNet152V2"),
    "seq32": perceptron(32, 875),
    "transformer": transformer,
    "vgg16": application("VGG16"),
    "vgg19": application("VGG19"),
}
