"""Records step traces of tf.functions, wherever in a connected cluster they run."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.eager import context

from tfsched.errors import TfschedError
from tfsched.grappler.bridge import install
from tfsched.grappler.config import OPTIMIZER, optimizers
from tfsched.grappler.graph import task_of
from tfsched.grappler.keeping import PARAMETER
from tfsched.tracing import remote
from tfsched.tracing.function_steps import Assembler
from tfsched.tracing.step_trace import StepTrace

_PLACE_S = 120.0  # for the coordinator to give a step to the wanted worker


def trace_function(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    steps: int = 5,
    coordinator: Any = None,
    worker: int | str | None = None,
) -> StepTrace:
    """Runs a tf.function some times with tracing and keeps what ran when.

    Every run is a real one: variables are updated, data are used up. The function runs once more before, so that nothing is
    measured that happens only once. Nothing else should run on the cluster meanwhile.

    Args:
      fn: a tf.function, or a callable that calls one.
      args, kwargs: its arguments; with a coordinator they may be per-worker values, as for ``coordinator.schedule``.
      steps: how many runs to record, at least 1.
      coordinator: the ``ClusterCoordinator`` that is to schedule the runs; None calls ``fn`` from here.
      worker: which worker runs them: its number, or a task ("/job:worker/replica:0/task:1"). None is the coordinator's first,
        and without a coordinator wherever ``fn`` itself says.

    Returns:
      A StepTrace, as ``tfsched.trace_steps`` gives for sessions. Its plan holds for all workers of the traced one's job, by
      names that the pass computes for this function.

    Raises:
      TfschedError: ``steps`` or ``worker`` cannot be used, another profiler runs on a task, or no task of the function's has
        tfsched.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise TfschedError(f"trace_function was asked for {steps!r} steps; give 1 or more.")
    if not callable(fn):
        raise TfschedError(f"trace_function got {fn!r}; give a tf.function, or a callable that calls one.")
    install()
    known = remote.tasks()
    task = _worker_task(worker, coordinator, known)
    key = uuid.uuid4().hex
    run = _Run(_with_key(fn, key), tuple(args), dict(kwargs or {}), coordinator, task)
    run()
    reached = remote.reach(known)
    assembler = Assembler(task)
    for one in reached:
        assembler.add_graphs(one.graphs(key))
    assembler.choose_graph(task)
    for _ in range(steps):
        started: list[remote.Remote] = []
        with contextlib.ExitStack() as stops:
            for one in reached:
                one.start()
                stops.callback(lambda one=one: started.append(one) or rows.append(one.stop()))
            rows: list[Any] = []
            start_us = time.time_ns() // 1000
            run()
            end_us = time.time_ns() // 1000
        assembler.add_step(start_us, end_us, [row for some in rows for row in some])
    for one in reached:
        assembler.add_sends(one.sends())
    return assembler.finish([name for name in known if name != task and _same_job(name, task)])
