"""What a coordinator does for the bench: schedules functions on the workers of a ParameterServerStrategy."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfsched import placement
from tfsched.bench import functions, graphs
from tfsched.bench.errors import BenchError
from tfsched.bench.models import Model, Network, find_model
from tfsched.bench.plans import make_plan
from tfsched.bench.settings import TFSCHED


class Coordinator:
    """Answers the requests of `Cluster.call`: `do_X` those with `do` X, the rest are its arguments.

    A "session" is a setting with a function of its own here.
    """

    def __init__(self, cluster: dict[str, list[str]], protocol: str, inter_op_threads: int, timeout_s: float) -> None:
        self._cluster = cluster
        self._protocol = protocol
        self._timeout_s = timeout_s
        self._strategy: Any = None
        self._coordinator: Any = None
        self._model: Model | None = None
        self._network: Network | None = None
        self._phase = ""
        self._batch = 0
        self._functions: dict[str, tuple[Any, Any]] = {}  # with tfsched's options, None to run it as it is
        tf.config.threading.set_inter_op_parallelism_threads(inter_op_threads)
        tf.get_logger().setLevel("ERROR")
        if protocol == TFSCHED:
            import tfsched

            tfsched.load()

    def _connect(self, balanced: bool) -> None:
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(self._cluster), task_type="chief", task_id=0, rpc_layer=self._protocol
        )
        make = placement.balanced_strategy if balanced else tf.distribute.ParameterServerStrategy
        self._strategy = make(resolver)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)

    def do_build(self, graph: str, model: str, phase: str, batch: int | None, seed: int, balanced: bool) -> dict[str, Any]:
        """Makes the variables, once: the only graph is the step's, and it is traced for each setting."""
        del graph
        assert batch is not None
        if self._network is None:
            self._connect(balanced)
            self._model = find_model(model)
            self._network = functions.make_network(self._model, self._strategy, seed)
        self._phase, self._batch = phase, batch
        described = functions.describe(self._network)
        return {"variables": graphs.to_json(described), "bytes_by_device": graphs.bytes_by_device(described)}

    def do_open(self, session: str, graph: str, protocol: str, options: dict[str, Any] | None = None) -> dict[str, Any]:
        """Makes the function of a setting."""
        del graph, protocol  # there is one of each here
        assert self._model is not None and self._network is not None
        step = functions.make_step(self._model, self._network, self._phase, self._batch, self._strategy)
        chosen = None
        if options is not None:
            import tfsched

            chosen = tfsched.Options(**options)
        self._functions[session] = step, chosen
        return {}

    @contextlib.contextmanager
    def _scheduled(self, options: Any) -> Iterator[None]:
        """Within it, functions run with these options."""
        if options is None:
            yield
            return
        import tfsched

        tfsched.enable(options)
        try:
            yield
        finally:
            tfsched.disable()

    def _ordered(self, options: Any) -> int:
        """How many ordered transfers have left the parameter servers so far."""
        if options is None:
            return 0
        import tfsched

        servers = range(len(self._cluster["ps"]))
        return sum(int(tfsched.stats(task=f"/job:ps/task:{index}")["tasks"]) for index in servers)

    def _drain(self, options: Any) -> None:
        """Waits for the updates of the last steps, where they may still be on their way."""
        if options is not None and not options.barrier:
            import tfsched

            tfsched.drain(timeout_s=self._timeout_s)

    def do_plan(self, session: str, algorithm: str, steps: int) -> dict[str, Any]:
        """Traces steps of a setting's function on the first worker and returns the plan that `algorithm` makes of them."""
        import tfsched

        step, options = self._functions[session]
        with self._scheduled(options):
            trace = tfsched.trace_function(step, steps=steps, coordinator=self._coordinator)
        return {"plan": make_plan(trace, algorithm)}

    def do_close(self, session: str) -> dict[str, Any]:
        """Forgets a setting's function."""
        self._functions.pop(session, None)
        return {}

    def do_run(self, session: str, fetch: str, count: int = 1) -> dict[str, Any]:
        """Schedules `count` steps for each worker, a block.

        Returns:
            `block_s`: seconds of all until the last update is applied; `ends_s`: when each step of any worker had done its
            own part, since the block's begin, sorted; `finishes_s`: of the block, each worker's last finish since its
            start; `unscheduled`: whether none of the parameter servers' transfers was ordered, but asked.
        """
        del fetch
        step, options = self._functions[session]
        ordered = self._ordered(options)
        workers = len(self._cluster["worker"])
        with self._scheduled(options):
            began_s, begin_s = time.time(), time.perf_counter()
            results = [self._coordinator.schedule(step) for _ in range(count * workers)]
            self._coordinator.join()
            self._drain(options)
            block_s = time.perf_counter() - begin_s
        finished = []
        for result in results:
            # Where it ran is known from its values before they are fetched, and from nothing that is public.
            worker = tf.DeviceSpec.from_string(result._get_values()["finish"].device).task
            values = result.fetch()
            if not math.isfinite(values["loss"]):
                raise BenchError(f"the loss became {values['loss']}: lower --steps")
            finished.append((worker, float(values["finish"])))
        ends_s = sorted(clock_s - began_s for _, clock_s in finished)
        finishes_s = last_finishes(finished, workers, began_s)
        unscheduled = options is not None and self._ordered(options) == ordered
        return {"block_s": block_s, "ends_s": ends_s, "finishes_s": [finishes_s], "unscheduled": unscheduled}


def last_finishes(finished: list[tuple[int, float]], workers: int, began_s: float) -> list[float]:
    """Seconds from `began_s` until each worker finished its last step, from the (worker, clock) of each step."""
    # Whoever is free takes the next step, so in a short block one may get none: it has been idle from the beginning.
    last_s = [1e-6] * workers
    for worker, clock_s in finished:
        last_s[worker] = max(last_s[worker], clock_s - began_s)
    return last_s
