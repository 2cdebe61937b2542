"""The loops in which a worker trains where workers all-reduce: a tf.function of one's own, and Keras' Model.fit."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from typing import Any, Protocol

import tensorflow as tf

from tfsched.bench import keras_models
from tfsched.bench.errors import BenchError
from tfsched.bench.graphs import LEARNING_RATE
from tfsched.bench.members import Member, Strategy
from tfsched.bench.models import Model


@dataclasses.dataclass
class Times:
    """When each step of a block began, had its gradients (none where that is not seen) and returned: time.monotonic."""

    starts_s: list[float] = dataclasses.field(default_factory=list)
    finishes_s: list[float] = dataclasses.field(default_factory=list)
    ends_s: list[float] = dataclasses.field(default_factory=list)


class Loop(Protocol):
    """Runs consecutive steps of a setting or a bound."""

    def run(self, count: int, batch: int | None) -> Times:
        """Runs `count` steps from when all workers are ready; `batch` counts where the loop was made without one."""


def check_loss(loss: float) -> None:
    """Raises BenchError where training has diverged: what is timed then is arithmetic with infinities."""
    if not math.isfinite(loss):
        raise BenchError(f"the loss became {loss}: lower --steps")


class CustomLoop:
    """Calls a tf.function once a step.

    Args:
        step: a Python function of `batch`, from `functions.make_reducing_step`.
        member: this worker among the others.
        batch: samples a step; None is told at each run.
        options: of tfsched; None runs the function as it is.
    """

    def __init__(self, step: Any, member: Member, batch: int | None, options: Any) -> None:
        self._member = member
        # A number is part of the traced graph; in its place the search for a batch gives tensors, for one graph for all.
        self._arguments = {} if batch is None else {"batch": batch}
        if options is None:
            self._function = tf.function(step)
        else:
            import tfsched

            self._function = tfsched.function(step, options=options)

    def step(self) -> Any:
        """One step, of a loop whose batch is known."""
        return self._function(**self._arguments)

    def run(self, count: int, batch: int | None) -> Times:
        """As of Loop."""
        self._member.together()
        times = Times()
        epoch_s = time.time() - time.monotonic()
        for _ in range(count):
            times.starts_s.append(time.monotonic())
            values = self._function(**(self._arguments or {"batch": tf.constant(batch or 0)}))
            times.ends_s.append(time.monotonic())
            check_loss(float(values["loss"]))
            times.finishes_s.append(float(values["finish"]) - epoch_s)
        return times


class FitLoop:
    """Calls Model.fit once a block: of tf_keras under a strategy, else of Keras 3.

    Args:
        model: that is trained; loops of one worker may share its variables.
        member: this worker among the others.
        seed: of this worker's inputs.
        reduces: False keeps each worker's gradients, and takes nothing of them off, so that the workers stay alike.
        batch: samples a step; None is told at each run.
        options: of tfsched; None runs fit as it is.
    """

    def __init__(
        self, model: Model, keras_model: Any, member: Member, seed: int, reduces: bool, batch: int | None, options: Any
    ) -> None:
        self._model, self._member, self._seed, self._batch, self._options = model, member, seed, batch, options
        self._keras = keras_models.library(isinstance(member, Strategy))
        # A model of its own has a training function of its own, over the same layers and variables.
        self._trained = member.make(lambda: self._keras.Model(keras_model.inputs, keras_model.outputs))
        optimizer = member.make(lambda: self._optimizer(reduces))
        with contextlib.nullcontext() if not isinstance(member, Strategy) else member.strategy.scope():
            self._trained.compile(optimizer, loss=keras_models.loss(self._keras, model))
        self._data: dict[int, Any] = {}
        self._clock = self._make_clock()

    def _optimizer(self, reduces: bool) -> Any:
        base: Any = self._keras.optimizers.SGD
        if not reduces:

            class Alone(base):
                def aggregate_gradients(self, grads_and_vars: Any) -> Any:  # tf_keras: as they are
                    return grads_and_vars

            return Alone(0.0)
        if isinstance(self._member, Strategy):
            return base(LEARNING_RATE)
        return self._member.distributed(base(LEARNING_RATE))

    def _make_clock(self) -> Any:
        together = self._member.together

        class Clock(self._keras.callbacks.Callback):  # type: ignore[name-defined]
            times = Times()

            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if batch == 0:  # what fit does before its first step is not measured
                    together()
                self.times.starts_s.append(time.monotonic())

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                self.times.ends_s.append(time.monotonic())

        return Clock()

    def _dataset(self, batch: int) -> Any:
        if batch not in self._data:

            def make() -> Any:
                samples = keras_models.samples(self._model, batch, self._seed)
                endless = tf.data.Dataset.from_tensor_slices(samples).repeat()
                # While a batch is searched its size is no part of the traced graph.
                return endless.batch(batch, drop_remainder=self._batch is not None)

            made = make()
            if isinstance(self._member, Strategy):
                made = self._member.strategy.distribute_datasets_from_function(lambda _: make())
            self._data = {batch: made}
        return self._data[batch]

    def run(self, count: int, batch: int | None) -> Times:
        """As of Loop."""
        self._clock.times = Times()
        data = self._dataset(self._batch or batch or 0)
        with self._scheduled():
            history = self._trained.fit(data, steps_per_epoch=count, verbose=0, callbacks=[self._clock])
        check_loss(float(history.history["loss"][-1]))
        return self._clock.times

    def _scheduled(self) -> contextlib.AbstractContextManager[None]:
        if self._options is None:
            return contextlib.nullcontext()
        import tfsched

        return tfsched.options(self._options)
