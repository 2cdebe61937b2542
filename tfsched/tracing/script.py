"""Traces steps of a user's own script, unchanged, by watching the sessions that it runs."""

from __future__ import annotations

import collections
import pathlib
import runpy
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.client import session as tf_session

from tfsched.errors import TfschedError
from tfsched.tracing.step_trace import StepTrace
from tfsched.tracing.tracer import Recorder


class _Enough(BaseException):
    """Ends the script once its steps are traced. No ``except Exception`` of the script's may stop it."""


def trace_script(
    path: str,
    arguments: Sequence[str],
    steps: int,
    skip: int,
    on_step: Callable[[int], None] = lambda done: None,
) -> StepTrace:
    """Runs a script until some of its steps have been traced.

    The traced steps are those of the first fetches that are run more than ``skip`` times on a cluster.

    Args:
      path: a Python file.
      arguments: its sys.argv[1:].
      steps: how many steps to trace.
      skip: how many runs of the same fetches to let pass first.
      on_step: called with the number of steps traced so far.

    Raises:
      TfschedError: there is no such file, or the script ended first.
    """
    if not pathlib.Path(path).is_file():
        raise TfschedError(f"The script {path} does not exist; give the path of a Python file.")
    watcher = _Watcher(steps, skip, on_step)
    original = tf_session.BaseSession.run
    argv, syspath = sys.argv, list(sys.path)

    def run(self: Any, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        return watcher.run(original, self, fetches, feed_dict, options, run_metadata)

    try:
        tf_session.BaseSession.run = run
        sys.argv = [path, *arguments]
        sys.path.insert(0, str(pathlib.Path(path).resolve().parent))
        runpy.run_path(path, run_name="__main__")
    except _Enough:
        pass
    except SystemExit:
        pass
    finally:
        tf_session.BaseSession.run = original
        sys.argv, sys.path[:] = argv, syspath
    if watcher.trace is None:
        raise TfschedError(
            f"The script {path} ended after {watcher.recorder.count} of {steps} traced steps; it must run the same fetches "
            f"at least {steps + skip} times in a session of a cluster (see --steps and --skip)."
        )
    return watcher.trace


class _Watcher:
    """Counts runs of the same fetches and traces those that repeat."""

    def __init__(self, steps: int, skip: int, on_step: Callable[[int], None]):
        self._steps, self._skip, self._on_step = steps, skip, on_step
        self._seen: collections.Counter[str] = collections.Counter()
        self._chosen: str | None = None
        self.recorder = Recorder()
        self.trace: StepTrace | None = None

    def run(self, original: Any, session: Any, fetches: Any, feed_dict: Any, options: Any, run_metadata: Any) -> Any:
        signature = repr((session.sess_str, tf.nest.flatten(fetches, expand_composites=False)))
        self._seen[signature] += 1
        mine = self._chosen in (None, signature) and self._seen[signature] > self._skip
        if not mine or options is not None or run_metadata is not None or not session.sess_str:
            return original(session, fetches, feed_dict, options, run_metadata)
        self._chosen = signature

        def call(fetches: Any, feed_dict: Any, options: Any, run_metadata: Any) -> Any:
            return original(session, fetches, feed_dict, options, run_metadata)

        result = self.recorder.run(call, fetches, feed_dict)
        self._on_step(self.recorder.count)
        if self.recorder.count >= self._steps:
            self.trace = self.recorder.finish(session)
            raise _Enough
        return result
