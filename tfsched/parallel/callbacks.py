"""Callbacks for Model.fit of Keras 3 and of tf_keras: the same classes for both. Imports no Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfsched._callback import Callback
from tfsched.errors import TfschedError
from tfsched.parallel.membership import size
from tfsched.parallel.values import Average, allreduce, broadcast_variables


class BroadcastGlobalVariablesCallback(Callback):
    """All workers begin with the weights and the optimizer's state of one.

    They get them when training begins, or, where the model is not built by then, behind the first batch.

    Args:
      root_rank: whose.
    """

    def __init__(self, root_rank: int = 0):
        self.root_rank = root_rank
        self._done = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcasts, if there is something."""
        self._done = bool(getattr(self.model, "built", False))
        if self._done:
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcasts, if it was not done before."""
        if not self._done:
            self._done = True
            self._broadcast()

    def _broadcast(self) -> None:
        optimizer = self.model.optimizer
        if hasattr(optimizer, "build") and not getattr(optimizer, "built", False):
            optimizer.build(self.model.trainable_variables)
        found = getattr(optimizer, "variables", [])
        state = list(found() if callable(found) and not isinstance(found, list) else found)
        broadcast_variables([*self.model.weights, *state], self.root_rank)


class MetricAverageCallback(Callback):
    """At the end of an epoch, losses and metrics become the averages of all workers'.

    Callbacks behind it in the list see the averages, and so does fit's history.
    """

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Exchanges the numbers in ``logs``."""
        names = sorted(logs or {})
        if not logs or not names:
            return
        values = [np.asarray(logs[name], np.float64) for name in names]
        whole = np.concatenate([value.reshape(-1) for value in values])
        averages = allreduce(tf.constant(whole), Average).numpy()
        ends = np.cumsum([value.size for value in values])[:-1]
        for name, value, part in zip(names, values, np.split(averages, ends), strict=True):
            logs[name] = float(part[0]) if value.ndim == 0 else part.reshape(value.shape)


class LearningRateScheduleCallback(Callback):
    """Sets the learning rate to ``initial_lr`` times a multiplier, epoch by epoch.

    Args:
      initial_lr: learning rate.
      multiplier: a number, or a function of the epoch; of fractions of epochs with ``staircase=False``.
      start_epoch: the first epoch in which it is set.
      end_epoch: the first one in which it is not any more; None for never.
      staircase: set it at the beginning of epochs only, or else before each batch.
      steps_per_epoch: batches in an epoch, for ``staircase=False`` where fit does not know.

    Raises:
      TfschedError: ``initial_lr`` is no number above 0; when training begins: the optimizer has a schedule already, or
        steps_per_epoch is needed.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        steps_per_epoch: int | None = None,
    ):
        if not isinstance(initial_lr, (int, float)) or not initial_lr > 0:
            raise TfschedError(f"initial_lr is {initial_lr!r}; give a learning rate above 0.")
        self.initial_lr, self.staircase, self.steps_per_epoch = initial_lr, staircase, steps_per_epoch
        self.start_epoch, self.end_epoch = start_epoch, end_epoch
        self.multiplier: Callable[[float], float] = multiplier if callable(multiplier) else lambda epoch: float(multiplier)
        self._epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Looks whether it can be set."""
        rate = getattr(self.model.optimizer, "_learning_rate", None)
        if callable(rate) and not hasattr(rate, "assign"):
            raise TfschedError(
                f"the optimizer's learning rate is the schedule {type(rate).__name__}; give the optimizer a number, or "
                f"leave {type(self).__name__} out."
            )
        self.steps_per_epoch = self.steps_per_epoch or (self.params or {}).get("steps")
        if not self.staircase and not self.steps_per_epoch:
            raise TfschedError("fit does not know how many batches an epoch has; give steps_per_epoch to the callback.")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Sets it."""
        self._epoch = epoch
        self._set(epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets it, without staircase."""
        if not self.staircase and self.steps_per_epoch:
            self._set(self._epoch + batch / self.steps_per_epoch)

    def _set(self, epoch: float) -> None:
        if self.start_epoch <= epoch and (self.end_epoch is None or epoch < self.end_epoch):
            self.model.optimizer.learning_rate = self.initial_lr * self.multiplier(epoch)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Lets the learning rate grow from ``initial_lr / size()`` to ``initial_lr`` over the first epochs, batch by batch.

    Args:
      initial_lr: the learning rate for all workers together; often one worker's times size().
      warmup_epochs: how many.
      steps_per_epoch: batches in an epoch, where fit does not know.

    Raises:
      TfschedError: as LearningRateScheduleCallback; warmup_epochs is not above 0.
    """

    def __init__(self, initial_lr: float, warmup_epochs: float = 5, steps_per_epoch: int | None = None):
        if not warmup_epochs > 0:
            raise TfschedError(f"warmup_epochs is {warmup_epochs!r}; give a number above 0.")
        workers = size()

        def multiplier(epoch: float) -> float:
            return (1 + (workers - 1) * min(epoch / warmup_epochs, 1.0)) / workers

        # One epoch more, whose first batch has the whole rate.
        end = int(warmup_epochs) + 1
        super().__init__(initial_lr, multiplier, end_epoch=end, staircase=False, steps_per_epoch=steps_per_epoch)
