"""The built-in models against the models themselves, and the times that are made of them."""

from __future__ import annotations

import math

import pytest

from tfsched.ordering.layers import LayerTable, training_dag
from tfsched.simulator import profiles

# The largest of the papers' models come from tf_keras; their weights are what the profile has to have, one by one.
FROM_KERAS = {"resnet50": "ResNet50", "vgg16": "VGG16", "inception_v3": "InceptionV3"}


@pytest.mark.parametrize("name", sorted(FROM_KERAS))
def test_tensors_are_those_of_the_model(name):
    import tf_keras

    model = getattr(tf_keras.applications, FROM_KERAS[name])(weights=None)
    sizes = [math.prod(weight.shape) * weight.dtype.size for weight in model.trainable_weights]
    table = profiles.load(name)
    assert table.parameter_bytes == sum(sizes)
    # model.layers, which the profile follows, and trainable_weights may list branches differently.
    assert sorted(row.parameter_bytes for row in table) == sorted(sizes)


# Published sizes: numbers of tensors and parameters as in the papers' tables (PACE, Table II; VGG: Simonyan and Zisserman).
@pytest.mark.parametrize(
    ("name", "tensors", "parameters_in_millions"),
    [
        ("vgg16", 32, 138.4),
        ("vgg19", 38, 143.7),
        ("transformer", 164, 91.8),
        ("resnet50", 214, 25.6),
        ("resnet18", 62, 11.7),
    ],
)
def test_published_sizes(name, tensors, parameters_in_millions):
    profile = profiles.describe(name)
    assert profile.tensors == tensors
    assert round(profile.parameter_bytes / 4e6, 1) == parameters_in_millions


@pytest.mark.parametrize("name", profiles.names())
def test_every_profile_loads_and_makes_a_dag(name):
    table = profiles.load(name, batch=3, flops=1e12)
    profile = profiles.describe(name)
    assert isinstance(table, LayerTable)
    assert len(table) == profile.tensors
    assert table.parameter_bytes == profile.parameter_bytes
    assert table.forward_us == pytest.approx(profile.flops * 3 / 1e12 * 1e6)
    assert table.backward_us == pytest.approx(2 * table.forward_us)
    assert len(training_dag(table, 1e9).ops) == 3 * len(table)


def test_times_follow_batch_and_rate():
    one = profiles.load("resnet50", batch=1, flops=1e12)
    assert profiles.load("resnet50", batch=8, flops=2e12).forward_us == pytest.approx(4 * one.forward_us)
    default = profiles.load("resnet50")
    assert default == profiles.load("resnet50", batch=32, flops=profiles.FLOPS_PER_S)


@pytest.mark.parametrize("name", ["", "nope", "../resnet50", "resnet50.csv"])
def test_an_unknown_model_names_the_known_ones(name):
    with pytest.raises(profiles.ProfileError, match="resnet50"):
        profiles.load(name)


@pytest.mark.parametrize("batch", [0, -1, True, 2**40])
def test_a_wrong_batch(batch):
    with pytest.raises(profiles.ProfileError, match="batch"):
        profiles.load("resnet50", batch=batch)


@pytest.mark.parametrize("flops", [0, -1.0, math.nan, math.inf])
def test_a_wrong_rate(flops):
    with pytest.raises(profiles.ProfileError, match="per second"):
        profiles.load("resnet50", flops=flops)
