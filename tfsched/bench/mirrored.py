"""What a worker does for the bench under MultiWorkerMirroredStrategy: every worker the same, at the same time."""

from __future__ import annotations

import hashlib
import math
import time
from typing import Any

import tensorflow as tf

from tfsched.bench import functions
from tfsched.bench.errors import BenchError
from tfsched.bench.models import Model, Network, find_model
from tfsched.bench.settings import TFSCHED

_COUNTERS = ("packs_scheduled", "all_reduces")


class Mirrored:
    """Answers the requests of `Cluster.call_each`: `do_X` those with `do` X, the rest are its arguments.

    A "session" is a setting, or a bound, with a function of its own here.
    """

    def __init__(self, workers: list[str], protocol: str, index: int, intra_op_threads: int, inter_op_threads: int) -> None:
        self._protocol = protocol
        self._index = index
        self._model: Model | None = None
        self._network: Network | None = None
        self._functions: dict[str, tuple[Any, bool]] = {}  # and whether they run with tfsched's options
        tf.config.threading.set_intra_op_parallelism_threads(intra_op_threads)
        tf.config.threading.set_inter_op_parallelism_threads(inter_op_threads)
        tf.get_logger().setLevel("ERROR")
        if protocol == TFSCHED:
            import tfsched

            tfsched.load()
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": workers}), task_type="worker", task_id=index, rpc_layer=protocol
        )
        self._strategy: Any = tf.distribute.MultiWorkerMirroredStrategy(resolver)
        self._together = self._make_together()

    def _make_together(self) -> Any:
        """A function that returns when all workers have called it: a tiny all-reduce, which is always stock's."""

        @tf.function
        def together() -> Any:
            return self._strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones([1])))

        return together

    def do_build(self, model: str, seed: int) -> dict[str, Any]:
        """Makes the variables, once: settings and bounds have only functions of their own."""
        self._model = find_model(model)
        self._network = functions.make_network(self._model, self._strategy, seed)
        # All workers have the same values (the strategy sends them), but inputs of their own.
        tf.random.set_seed(64 * seed + self._index)
        sizes = [math.prod(variable.shape) * variable.dtype.size for variable in self._network.trainable]
        return {"gradient_bytes": sum(sizes)}

    def do_open(
        self, session: str, computes: bool, reduces: bool, batch: int | None = None, options: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Makes the function of a setting or a bound; without `batch` its size is given at each run."""
        assert self._model is not None and self._network is not None
        step = functions.make_mirrored_step(self._model, self._network, self._strategy, computes, reduces)
        # A number is part of the traced graph; in its place the search for a batch gives tensors, for one graph for all.
        arguments = {} if batch is None else {"batch": batch}
        if options is None:
            made = tf.function(step)
        else:
            import tfsched

            made = tfsched.function(step, options=tfsched.Options(**options))

        def call(given: int | None) -> Any:
            return made(**(arguments or {"batch": tf.constant(given or 0)}))

        self._functions[session] = call, options is not None
        return {}

    def _counters(self) -> dict[str, int]:
        """What tfsched has exchanged in this process so far; nothing where it is not loaded."""
        if self._protocol != TFSCHED:
            return dict.fromkeys(_COUNTERS, 0)
        import tfsched

        stats = tfsched.stats()
        return {name: int(stats[name]) for name in _COUNTERS}

    def do_run(self, session: str, count: int = 1, batch: int | None = None) -> dict[str, Any]:
        """Runs `count` consecutive steps, a block, from when all workers are ready.

        Returns:
            `starts_s`, `finishes_s` and `ends_s`: when each step began, had its gradients, and had updated its variables, by
            the clock that all processes of a machine share; `exchanged`: tensors that tfsched all-reduced, one by one;
            `unscheduled`: whether it all-reduced none but should.
        """
        step, scheduled = self._functions[session]
        before = self._counters()
        self._together()
        starts_s, finishes_s, ends_s = [], [], []
        epoch_s = time.time() - time.monotonic()
        for _ in range(count):
            starts_s.append(time.monotonic())
            values = step(batch)
            ends_s.append(time.monotonic())
            loss = float(values["loss"])
            if not math.isfinite(loss):
                raise BenchError(f"the loss became {loss}: lower --steps")
            finishes_s.append(float(values["finish"]) - epoch_s)
        if scheduled:  # a block ends with its last update
            import tfsched

            tfsched.drain()
            ends_s[-1] = time.monotonic()
        made = {name: value - before[name] for name, value in self._counters().items()}
        return {
            "starts_s": starts_s,
            "finishes_s": finishes_s,
            "ends_s": ends_s,
            "exchanged": made["all_reduces"],
            "unscheduled": scheduled and not made["packs_scheduled"],
        }

    def do_plan(self, session: str, algorithm: str, steps: int) -> dict[str, Any]:
        """Traces steps that all workers run, and saves the plan that the first one makes of its own."""
        call, _ = self._functions[session]
        self._together()
        if self._index > 0:
            for _ in range(steps + 1):  # a trace begins with one that is not recorded
                call(None)
            return {"plan": ""}
        from tfsched.bench.plans import save_plan
        from tfsched.tracing import trace_function

        return {"plan": save_plan(trace_function(call, (None,), steps=steps), algorithm)}

    def do_close(self, session: str) -> dict[str, Any]:
        """Forgets a setting's function."""
        del self._functions[session]
        return {}

    def do_digest(self) -> dict[str, Any]:
        """Of the values of all variables that are trained: the same on every worker, or something is wrong."""
        assert self._network is not None
        digest = hashlib.sha256()
        for variable in self._network.trainable:
            digest.update(variable.numpy().tobytes())
        return {"digest": digest.hexdigest()}
