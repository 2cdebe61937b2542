"""Builds the bench's step for tf.function: what one worker does in one step under a strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfsched.bench.graphs import LEARNING_RATE, Described, in_parts
from tfsched.bench.members import Member
from tfsched.bench.models import Model, Network

if TYPE_CHECKING:
    from tfsched.bench.models import LossFunction


def make_network(model: Model, strategy: Any, seed: int) -> Network:
    """The model with its variables where the strategy puts them on the parameter servers; shards count as variables."""
    tf.random.set_seed(seed)
    with strategy.scope():
        return in_parts(model.make())


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


def make_joining_step(trainable: list[Any], member: Member) -> Any:
    """As `make_reducing_step`: joins the variables' values to one tensor for each type, and splits that again."""

    def replica(batch: Any) -> dict[str, tf.Tensor]:
        del batch
        ends = []
        for dtype in dict.fromkeys(variable.dtype for variable in trainable):
            flat = [tf.reshape(variable, [-1]) for variable in trainable if variable.dtype == dtype]
            parts = tf.split(tf.concat(flat, 0), [part.shape[0] for part in flat])
            ends += [tf.cast(tf.reduce_sum(part[-1:]), tf.float32) for part in parts]  # a part may be empty
        loss = tf.add_n(ends)
        with tf.control_dependencies([loss]):
            finish = tf.timestamp()
        return {"loss": loss, "finish": finish}

    def step(batch: Any) -> Any:
        return member.run(replica, batch)

    return step


def make_exchanging_step(trainable: list[Any], member: Member) -> Any:
    """As `make_reducing_step`: all-reduces the variables' values. It makes and updates none: that is computing."""

    def replica(batch: Any) -> dict[str, tf.Tensor]:
        del batch
        # A variable itself has no device, which strategies want to know.
        sums = member.sums([tf.identity(variable) for variable in trainable])
        loss = tf.add_n([tf.cast(tf.reduce_sum(tf.reshape(one, [-1])[-1:]), tf.float32) for one in sums])
        with tf.control_dependencies([loss]):
            finish = tf.timestamp()
        return {"loss": loss, "finish": finish}

    def step(batch: Any) -> Any:
        return member.run(replica, batch)

    return step


def make_reducing_step(
    input_shape: tuple[int, ...], loss_of: LossFunction | None, trainable: list[Any], member: Member, reduces: bool
) -> Any:
    """A Python function of `batch`, a number or a tensor, for tf.function: one worker's step under all-reduce.

    Without `loss_of` it makes tensors up in place of the gradients, without `reduces` each worker keeps its own. Only a
    whole step changes the variables, so that those of all workers stay the same; the others update them by nothing, which
    takes as long. What it returns is as of `make_step`.
    """
    rate = LEARNING_RATE / member.size if loss_of is not None and reduces else 0.0

    def replica(batch: Any) -> dict[str, tf.Tensor]:
        if loss_of is not None:
            inputs = tf.random.uniform(tf.stack([batch, *input_shape]))
            inputs.set_shape([batch if isinstance(batch, int) else None, *input_shape])
            with tf.GradientTape() as tape:
                loss = loss_of(inputs, True)
            gradients = tape.gradient(loss, trainable)
        else:
            # Drawn in the step: of constants TensorFlow would make the tensors once and keep them.
            loss = tf.random.uniform([])
            gradients = [tf.fill(variable.shape, tf.cast(loss, variable.dtype)) for variable in trainable]
        # The all-reduce does not wait for this: it is only what a worker has done by itself.
        with tf.control_dependencies([loss, *gradients]):
            finish = tf.timestamp()
        if reduces:
            gradients = member.sums(gradients)
        for variable, gradient in zip(trainable, gradients, strict=True):
            tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)
        return {"loss": loss, "finish": finish}

    def step(batch: Any) -> Any:
        return member.run(replica, batch)

    return step
