"""Scalars for TensorBoard: this process's counters every so many steps, from Keras' fit or a MonitoredSession."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as context_lib

from tfsched._callback import Callback
from tfsched.control.fields import FIELDS, Kind
from tfsched.errors import TfschedError
from tfsched.ops.control import stats

DEFAULT_STEPS = 100
_SUFFIX = ".tfsched"  # of the file's name: others may write to the directory


class Scalars:
    """Writes "tfsched/seconds_per_step" and of each entry of stats() "tfsched/<entry>", or of a counter its growth each
    second, "tfsched/<entry>_per_second"; each from the first time on at which it is not 0.

    Args:
      where: a directory, for a file of its own; or a writer of tf.summary.create_file_writer or tf.compat.v1.summary.
      every_steps: how often, in steps.

    Raises:
      TfschedError: ``where`` is neither, or ``every_steps`` is not above 0.
    """

    def __init__(self, where: Any, every_steps: int = DEFAULT_STEPS):
        if isinstance(every_steps, bool) or not isinstance(every_steps, int) or every_steps < 1:
            raise TfschedError(f"every_steps is {every_steps!r}; give a number of steps, 1 or more.")
        if not isinstance(where, (str, os.PathLike)) and not _is_v1(where) and not _is_v2(where):
            raise TfschedError(f"scalars cannot be written to {where!r}; give a directory or a writer of tf.summary.")
        self._where, self._every = where, every_steps
        self._writer: Any = None
        self._seen: set[str] = set()
        self._before: tuple[int, float, dict[str, Any]] | None = None

    def step(self, step: int) -> None:
        """Called behind each step with its number, or behind several with the last one's."""
        if self._before is None:
            self._before = (step, time.monotonic(), stats())
        elif step - self._before[0] >= self._every:
            self._write(step)

    def end(self) -> None:
        """Lets what was written reach the file; a file of ours is closed."""
        if self._writer is None:
            return
        if self._writer is self._where:
            with context_lib.eager_mode():
                self._writer.flush()
        else:
            self._writer.close()
        self._writer, self._before = None, None

    def _write(self, step: int) -> None:
        assert self._before is not None
        step_before, time_before_s, before = self._before
        now, time_s = stats(), time.monotonic()
        self._before = (step, time_s, now)
        passed_s = time_s - time_before_s
        values = {"seconds_per_step": passed_s / (step - step_before)}
        for key, value in now.items():
            field = FIELDS.get(key)
            if isinstance(value, str) or field is None:
                continue
            self._seen.update([key] if value else [])
            if key in self._seen and field.kind is Kind.COUNTER:
                values[f"{key}_per_second"] = (value - before[key]) / passed_s
            elif key in self._seen:
                values[key] = float(value)
        self._put({f"tfsched/{key}": value for key, value in values.items()}, step)

    def _put(self, values: dict[str, float], step: int) -> None:
        if self._writer is None:
            self._writer = self._open()
        if _is_v1(self._writer):
            made = [tf.compat.v1.Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
            self._writer.add_summary(tf.compat.v1.Summary(value=made), step)
            return
        # What tf.summary.scalar does, which needs TensorBoard to be installed. A hook is called within a graph's scope, and
        # no public function leaves it.
        metadata = tf.compat.v1.SummaryMetadata()
        metadata.plugin_data.plugin_name = "scalars"
        with context_lib.eager_mode(), self._writer.as_default(step):
            for tag, value in values.items():
                tf.summary.write(tag, tf.constant(value, tf.float32), metadata=metadata)

    def _open(self) -> Any:
        if not isinstance(self._where, (str, os.PathLike)):
            return self._where
        with tf.Graph().as_default():  # it refuses to be made in eager mode, which it does not use
            return tf.compat.v1.summary.FileWriter(os.fspath(self._where), filename_suffix=_SUFFIX)


def _is_v1(writer: Any) -> bool:
    return hasattr(writer, "add_summary")


def _is_v2(writer: Any) -> bool:
    return hasattr(writer, "as_default") and hasattr(writer, "flush")


class ScalarsCallback(Callback):
    """Writes :class:`Scalars` while ``fit`` of Keras 3 or tf_keras trains.

    Args:
      where: a directory, or a writer of tf.summary. Each worker needs its own.
      every_steps: how often, in steps (batches).

    Raises:
      TfschedError: as Scalars.
    """

    # Logs are not looked at, so nobody has to wait for them: tf_keras asks for the first, under ParameterServerStrategy with
    # an error. Keras 3 then calls on threads of its own, in any order within an epoch.
    _supports_tf_logs = True
    async_safe = True

    def __init__(self, where: Any, every_steps: int = DEFAULT_STEPS):
        self._scalars = Scalars(where, every_steps)
        self._lock = threading.Lock()
        self._step = self._epoch_began = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Batches are counted anew in each epoch; steps are not."""
        self._epoch_began = self._step

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts; with steps_per_execution not every batch is told."""
        with self._lock:
            self._step = max(self._step, self._epoch_began + batch + 1)
            self._scalars.step(self._step)

    def on_train_end(self, logs: Any = None) -> None:
        """Lets what was written reach the file."""
        self._scalars.end()


class ScalarsHook(tf.compat.v1.train.SessionRunHook):
    """Writes :class:`Scalars` while a MonitoredSession trains. Fetches nothing: steps are this session's runs, counted from
    the global step that it began with.

    Args:
      where: a directory, or a writer of tf.summary (of TensorFlow 2 only where eager execution is on). Each worker needs
        its own.
      every_steps: how often, in steps.

    Raises:
      TfschedError: as Scalars.
    """

    def __init__(self, where: Any, every_steps: int = DEFAULT_STEPS):
        self._scalars = Scalars(where, every_steps)
        self._step, self._global_step = 0, None

    def begin(self) -> None:
        """Called before the graph is finalized."""
        self._global_step = tf.compat.v1.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Called with each session, also with one that takes a lost one's place."""
        self._step = int(session.run(self._global_step)) if self._global_step is not None else self._step

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Counts."""
        self._step += 1
        self._scalars.step(self._step)

    def end(self, session: Any) -> None:
        """Called before the session is closed."""
        self._scalars.end()
