"""Built-in models: every trainable tensor's bytes and operations. May import the standard library and tfsched.ordering.

The CSV files beside this one are written by benchmarks/make_profiles.py from the models themselves. Times are not measured:
they are operations / rate, with the rate stated here or given by the user.
"""

from __future__ import annotations

import csv
import math
from importlib import resources
from typing import NamedTuple

from tfsched.ordering.layers import Layer, LayerTable

# Roughly what a V100 reaches in 32-bit training of ResNet-50 (about 360 images of 3 x 7.8 GFLOP a second).
FLOPS_PER_S = 8e12
# Back-propagation computes two gradients, of the inputs and of the parameters, each as much work as the forward pass.
BACKWARD_BY_FORWARD = 2.0

SUFFIX = ".csv"


class ProfileError(ValueError):
    """A profile that does not exist, or a number it cannot use; one sentence."""


class Profile(NamedTuple):
    """One model. A sample is an image, or one token of the Transformer; the batch is the one of the papers' experiments."""

    name: str
    batch: int
    tensors: int
    parameter_bytes: int
    flops: int


# Samples a worker and step. ByteScheduler (section 6.1) has 32, 32 and 512 for VGG16, ResNet-50 and Transformer, Prophet
# (section 5.1) 16 to 64. seq32 and mlp24 are the bench's, at about the batch where computing lasts as long as 1 Gbit/s.
_BATCH = {"transformer": 512, "seq32": 512, "mlp24": 512}
_DEFAULT_BATCH = 32


def names() -> list[str]:
    """The built-in models, sorted."""
    return sorted(
        path.name.removesuffix(SUFFIX) for path in resources.files(__name__).iterdir() if path.name.endswith(SUFFIX)
    )


def describe(name: str) -> Profile:
    """What is known of a model. Raises ProfileError for an unknown name."""
    rows = _rows(name)
    return Profile(name, default_batch(name), len(rows), sum(row[2] for row in rows), sum(row[1] for row in rows))


def default_batch(name: str) -> int:
    """Samples a worker and step, where the user gives none."""
    return _BATCH.get(name, _DEFAULT_BATCH)


def load(name: str, batch: int | None = None, flops: float | None = None) -> LayerTable:
    """Return the model as a table with one row a tensor.

    The forward time of a row is its operations * `batch` / `flops`, with `flops` in operations per second (default: 8e12,
    about a V100's); the backward time is twice that. Raises ProfileError for an unknown name, or a batch or rate that is not
    above zero.
    """
    rows = _rows(name)
    samples = default_batch(name) if batch is None else batch
    if isinstance(samples, bool) or not isinstance(samples, int) or not 0 < samples < 2**31:
        raise ProfileError(f"the batch is {samples!r}; give a whole number above zero")
    rate = FLOPS_PER_S if flops is None else flops
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not (math.isfinite(rate) and rate > 0):
        raise ProfileError(f"the operations per second are {rate!r}; give a number above zero")
    table = []
    for tensor, operations, size in rows:
        forward_us = operations * samples / rate * 1e6
        table.append(Layer(tensor, forward_us, BACKWARD_BY_FORWARD * forward_us, size))
    return LayerTable(table)


def _rows(name: str) -> list[tuple[str, int, int]]:
    if name not in names():
        raise ProfileError(f"model {name!r} is unknown; built-in models: {', '.join(names())}")
    text = (resources.files(__name__) / f"{name}{SUFFIX}").read_text(encoding="utf-8")
    return [(tensor, int(operations), int(size)) for tensor, operations, size in list(csv.reader(text.splitlines()))[1:]]
