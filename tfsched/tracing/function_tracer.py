"""Records step traces of tf.functions, wherever in a connected cluster they run."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.coordinator import cluster_coordinator
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import polymorphic_function as def_function

from tfsched.errors import TfschedError
from tfsched.grappler.bridge import install
from tfsched.grappler.reading.graph import task_of
from tfsched.tracing import remote
from tfsched.tracing.asking import asked_for
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
    worker: int = 0,
) -> StepTrace:
    """Runs a tf.function some times with tracing and keeps what ran when.

    Every run is a real one: variables are updated, data are used up. The function runs once more before, so that nothing is
    measured that happens only once. Nothing else should run on the cluster meanwhile.

    Args:
      fn: a tf.function, or a callable that calls one.
      args, kwargs: its arguments; with a coordinator they may be per-worker values, as for ``coordinator.schedule``.
      steps: how many runs to record, at least 1.
      coordinator: the ``ClusterCoordinator`` that schedules the runs. None: ``fn`` is called from here, and runs where it
        and the ``tf.device`` around this call say. Under MultiWorkerMirroredStrategy each worker calls this for its own
        steps, or runs ``fn`` ``steps`` + 1 times while another one traces.
      worker: the number of the worker that the coordinator is to run it on.

    Returns:
      A StepTrace, as ``tfsched.trace_steps`` gives for sessions. Its plan names the transfers as the pass does for this
      function, and serves all workers.

    Raises:
      TfschedError: an argument cannot be used, another profiler runs on a task, or ``fn`` does not cross tasks with tfsched.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise TfschedError(f"trace_function was asked for {steps!r} steps; give 1 or more.")
    if not callable(fn):
        raise TfschedError(f"trace_function got {fn!r}; give a tf.function, or a callable that calls one.")
    install()
    known = _known()
    key = uuid.uuid4().hex
    run = _runner(fn, tuple(args), dict(kwargs or {}), coordinator, worker, key, known)
    run()
    reached = remote.reach(known)
    assembler = Assembler([graph for one in reached for graph in one.graphs(key)])
    for _ in range(steps):
        assembler.add_step(*_recorded(run, reached))
    for one in reached:
        assembler.add_sends(one.sends())
    return assembler.finish()


def _known() -> list[str]:
    """The tasks that are asked what ran: this process alone where each worker runs the whole program for itself."""
    server = context.context()._collective_ops_server_def
    if context.get_server_def() is None and server is not None:
        return [f"/job:{server.job_name}/replica:0/task:{server.task_index}"]
    return remote.tasks()


def _recorded(run: Callable[[], None], reached: list[remote.Remote]) -> tuple[int, int, list[tuple[str, int, int]]]:
    """Runs a step; when it began and ended, and its ops."""
    started: list[remote.Remote] = []
    ops: list[tuple[str, int, int]] = []
    try:
        for one in reached:
            one.start()
            started.append(one)
        start_us = time.time_ns() // 1000
        run()
        end_us = time.time_ns() // 1000
    finally:
        for one in started:
            ops.extend(one.stop())
    return start_us, end_us, ops


def _runner(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    coordinator: Any,
    worker: int,
    key: str,
    known: list[str],
) -> Callable[[], None]:
    """What runs one step and returns when it is done."""
    if coordinator is None:

        def call() -> None:
            with asked_for(key):
                fn(*args, **kwargs)
            context.async_wait()

        return call
    wanted = f"/job:worker/replica:0/task:{worker}"
    if wanted not in known:
        workers = ", ".join(name.rpartition(":")[2] for name in known if name.startswith("/job:worker/"))
        raise TfschedError(f"The cluster has no worker {worker!r}; its workers are {workers or 'none'}.")

    concrete = _concrete(fn, args, kwargs, coordinator)

    def scheduled() -> None:
        ran: list[bool] = []

        def here(*args: Any, **kwargs: Any) -> Any:
            # The coordinator gives a step to whichever worker is free: the others pass it on without running it.
            if task_of(context.context().device_name or "") != wanted:
                return None
            with asked_for(key):
                result = concrete(*args, **kwargs)
            ran.append(True)
            return result

        deadline_s = time.monotonic() + _PLACE_S
        while not ran:
            # coordinator.schedule() takes nothing but tf.functions; the queue behind it takes what can be called.
            coordinator._cluster.schedule(here, args=args, kwargs=kwargs)
            coordinator.join()
            if time.monotonic() > deadline_s:
                raise TfschedError(
                    f"The coordinator gave worker {worker} no step within {_PLACE_S:g} s; see that it is alive."
                )

    return scheduled


def _concrete(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], coordinator: Any) -> Callable[..., Any]:
    """The function as ``coordinator.schedule`` would run it: traced from here, within the strategy's scope."""
    if not isinstance(fn, def_function.Function):
        return fn
    specs = [
        tf.nest.map_structure(cluster_coordinator._maybe_as_type_spec, cluster_coordinator._select_worker_slice(0, one))
        for one in (args, kwargs)
    ]
    with coordinator.strategy.scope():
        made: Callable[..., Any] = fn.get_concrete_function(*specs[0], **specs[1])
    return made
