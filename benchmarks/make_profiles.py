"""Writes the built-in model profiles (tfsched/simulator/profiles/*.csv) from tf_keras models; run it when a model is added.

    python benchmarks/make_profiles.py --out tfsched/simulator/profiles [MODEL ...]

A profile has one row for each trainable tensor, in the order of the forward pass: its name, the floating-point operations of
one sample's forward pass that need it, and its bytes. What a layer computes is counted with the layer's first tensor, what
layers without parameters compute with the tensor before them (a multiplication and an addition are two operations; pooling,
activations and sums count one for each number they read).
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tf_keras
from profile_models import MODELS, Rows, size_of
from tf_keras import layers


def elements(shape) -> int:
    """Numbers of one sample in tensors of this shape (or list of shapes)."""
    shapes = shape if isinstance(shape, list) else [shape]
    return sum(math.prod(size for size in one[1:]) for one in shapes)


def flops_of(layer) -> int:
    """Operations of one sample's forward pass through a layer."""
    out = elements(layer.output_shape)
    if isinstance(layer, layers.SeparableConv2D):
        depthwise, pointwise = layer.depthwise_kernel.shape, layer.pointwise_kernel.shape
        positions = math.prod(layer.output_shape[1:3])
        return 2 * positions * (math.prod(depthwise) + math.prod(pointwise))
    if isinstance(layer, layers.Conv2D):
        return 2 * math.prod(layer.kernel.shape) * math.prod(layer.output_shape[1:3])
    if isinstance(layer, layers.Dense):
        return 2 * math.prod(layer.kernel.shape)
    if isinstance(layer, (layers.MaxPooling2D, layers.AveragePooling2D)):
        return out * math.prod(layer.pool_size)
    if isinstance(layer, (layers.InputLayer, layers.Flatten, layers.Concatenate, layers.ZeroPadding2D, layers.Reshape)):
        return 0
    if isinstance(layer, layers.BatchNormalization):
        return 4 * out
    if isinstance(layer, (layers.Activation, layers.ReLU, layers.Add, layers.GlobalAveragePooling2D, layers.Lambda)):
        return elements(layer.input_shape)
    raise SystemExit(f"make_profiles: {type(layer).__name__} {layer.name!r} is a layer whose operations nobody counts yet")


def rows_of(model: tf_keras.Model) -> Rows:
    """A row for each trainable tensor, in the order of the forward pass."""
    rows: Rows = []
    for layer in model.layers:
        flops = flops_of(layer)
        if not layer.trainable_weights:
            if rows:
                name, before, size = rows[-1]
                rows[-1] = (name, before + flops, size)
            continue
        for position, weight in enumerate(layer.trainable_weights):
            tensor = weight.name.split(":")[0].rsplit("/", 1)[-1]
            # A bias is added to every number of the output; the rest belongs to the layer's first tensor.
            more = elements(layer.output_shape) if tensor == "bias" else 0
            rows.append((f"{layer.name}/{tensor}", more if position else flops, size_of(weight)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="tfsched/simulator/profiles", help="directory of the CSV files")
    parser.add_argument("models", nargs="*", help="only these; without, all")
    arguments = parser.parse_args()
    for name in arguments.models or MODELS:
        if name not in MODELS:
            sys.exit(f"make_profiles: {name!r} is unknown; choose from {', '.join(MODELS)}")
        made = MODELS[name]()
        rows = rows_of(made) if isinstance(made, tf_keras.Model) else made
        path = pathlib.Path(arguments.out) / f"{name}.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("name", "flops", "parameter_bytes"))
            writer.writerows(rows)
        flops, size = sum(row[1] for row in rows), sum(row[2] for row in rows)
        print(f"{name:<14} {len(rows):4} tensors {size:>12,} bytes {flops:>15,} operations a sample", flush=True)
        tf_keras.backend.clear_session()


if __name__ == "__main__":
    main()
