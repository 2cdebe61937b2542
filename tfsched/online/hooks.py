"""Autotuning from Keras' fit and from a MonitoredSession."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfsched._callback import Callback
from tfsched.online.autotuner import autotune

# Under ParameterServerStrategy fit only asks for steps: so many are awaited together, and are one sample.
_TOGETHER = 8


class AutotuneHook(tf.compat.v1.train.SessionRunHook):
    """Tunes while a MonitoredSession trains; give it to the chief's only.

    Args:
      arguments: of :class:`tfsched.autotune`, but for ``where``.

    Attributes:
      tuner: the :class:`tfsched.autotune`.

    Raises:
      TfschedError: as autotune.
    """

    def __init__(self, **arguments: Any):
        self.tuner = autotune(**arguments)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Called with each session, also with one that takes a lost one's place."""
        self.tuner.renewed(session)

    def before_run(self, run_context: Any) -> None:
        """A step begins."""
        self.tuner.begin_step()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """It has ended."""
        self.tuner.end_step()

    def end(self, session: Any) -> None:
        """Called before the session is closed."""
        self.tuner.close()
        self.tuner.wait()


class AutotuneCallback(Callback):
    """Tunes while ``fit`` of Keras 3 or tf_keras trains; each worker's program gives it to its fit.

    Args:
      arguments: of :class:`tfsched.autotune`, but for ``where``.

    Attributes:
      tuner: the :class:`tfsched.autotune`.

    Raises:
      TfschedError: as autotune.
    """

    _supports_tf_logs = True  # tf_keras: logs are not looked at

    def __init__(self, **arguments: Any):
        self.tuner = autotune(**arguments)
        self._first_batch: int | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """What lies between two epochs is no step."""
        self._first_batch = None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """A step begins."""
        if self._first_batch is None:
            self.tuner.begin_step()
            self._first_batch = batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """It has ended, or with steps_per_execution several."""
        if self._first_batch is None:
            return
        count = batch + 1 - self._first_batch
        coordinator = getattr(self.model, "_cluster_coordinator", None)
        if coordinator is not None and self.tuner.state == "searching":
            if count < _TOGETHER:
                return
            coordinator.join()
        self._first_batch = None
        self.tuner.end_step(count)

    def on_train_end(self, logs: Any = None) -> None:
        """Without a decision the first setting is put back."""
        self.tuner.close()
        self.tuner.wait()
