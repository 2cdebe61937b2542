"""Builds the bench's step as a tf.function: variables on the parameter servers, what one worker does in one step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfsched.bench.graphs import LEARNING_RATE, Described
from tfsched.bench.models import Model, Network


def make_network(model: Model, strategy: Any, seed: int) -> Network:
    """The model with its variables round robin over the parameter servers."""
    tf.random.set_seed(seed)
    with strategy.scope():
        return model.make()


def describe(network: Network) -> list[Described]:
    """Each variable, its device as a session's graph names it ("/job:ps/task:0")."""
    described = []
    for variable in network.variables:
        device = tf.DeviceSpec.from_string(variable.device)
        described.append(
            (tuple(variable.shape.as_list()), variable.dtype.base_dtype, f"/job:{device.job}/task:{device.task}")
        )
    return described


def make_step(model: Model, network: Network, phase: str, batch: int, strategy: Any) -> Any:
    """A tf.function for `ClusterCoordinator.schedule`, with the arithmetic of a session's step with one worker.

    Returns `loss` and `finish`, the worker's clock (s) once its own part is done. Each call makes a function of its own.
    """
    training = phase == "train"

    def replica() -> dict[str, tf.Tensor]:
        inputs = tf.random.uniform([batch, *model.input_shape])
        with tf.GradientTape() as tape:
            loss = network.loss(inputs, training)
        gradients = tape.gradient(loss, network.trainable) if training else []
        with tf.control_dependencies([loss, *gradients]):
            finish = tf.timestamp()
        for variable, gradient in zip(network.trainable if training else [], gradients, strict=True):
            with tf.device(variable.device):
                tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=LEARNING_RATE, delta=gradient)
        return {"loss": loss, "finish": finish}

    @tf.function
    def step() -> Any:
        return strategy.run(replica)

    return step
