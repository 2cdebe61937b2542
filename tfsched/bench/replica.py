"""What a worker does for the bench where workers all-reduce: every worker the same, at the same time."""

from __future__ import annotations

import contextlib
import hashlib
import math
import socket
import time
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import tensorflow as tf

from tfsched.bench import functions, keras_models, loops
from tfsched.bench.members import Strategy, join
from tfsched.bench.models import Model, find_model
from tfsched.bench.settings import FIT, TFSCHED
from tfsched.bench.tcp import TcpLoop

_COUNTERS = ("packs_scheduled", "all_reduces")


class Replica:
    """Answers the requests of `Cluster.call_each`: `do_X` those with `do` X, the rest are its arguments.

    A "session" is a setting, or a bound, with a loop of its own here.
    """

    def __init__(
        self,
        api: str,
        loop: str,
        workers: list[str],
        protocol: str,
        index: int,
        intra_op_threads: int,
        inter_op_threads: int,
    ) -> None:
        self._fits = loop == FIT
        self._protocol = protocol
        self._index = index
        self._seed = 0
        self._model: Model | None = None
        self._trainable: list[Any] = []
        self._loss: Any = None  # of a custom loop
        self._keras_model: Any = None  # of Model.fit
        self._loops: dict[str, tuple[loops.Loop, bool]] = {}  # and whether they run with tfsched's options
        tf.config.threading.set_intra_op_parallelism_threads(intra_op_threads)
        tf.config.threading.set_inter_op_parallelism_threads(inter_op_threads)
        tf.get_logger().setLevel("ERROR")
        if protocol == TFSCHED:
            import tfsched

            tfsched.load()
        self._host = workers[index].rpartition(":")[0]
        self._listening: socket.socket | None = None
        self._member = join(api, loop, workers, protocol, index)

    def do_build(self, model: str, seed: int) -> dict[str, Any]:
        """Makes the variables, once: settings and bounds have only loops of their own."""
        found = self._model = find_model(model)
        # All workers have the same values, but inputs of their own.
        tf.random.set_seed(seed)
        if self._fits:
            strategy = isinstance(self._member, Strategy)
            self._keras_model = self._member.make(lambda: keras_models.build(keras_models.library(strategy), found, seed))
            trainable = self._keras_model.trainable_variables
            self._trainable = trainable if strategy else [one.value for one in trainable]  # Keras 3 wraps TensorFlow's
        else:
            network = self._member.make(found.make)
            self._trainable, self._loss = network.trainable, network.loss
        self._seed = 64 * seed + self._index
        tf.random.set_seed(self._seed)
        sizes = [math.prod(one.shape) * tf.as_dtype(one.dtype).size for one in self._trainable]
        return {"gradient_bytes": sum(sizes)}

    def do_open(
        self, session: str, computes: bool, reduces: bool, batch: int | None = None, options: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Makes the loop of a setting or a bound; without `batch` its size is given at each run."""
        assert self._model is not None
        chosen = None
        if options is not None:
            import tfsched

            chosen = tfsched.Options(**options)
        made: loops.Loop
        if self._fits and computes:
            made = loops.FitLoop(self._model, self._keras_model, self._member, self._seed, reduces, batch, chosen)
        else:
            step = functions.make_reducing_step(
                self._model.input_shape, self._loss if computes else None, self._trainable, self._member, reduces
            )
            made = loops.CustomLoop(step, self._member, batch, chosen)
        self._loops[session] = made, chosen is not None
        return {}

    def do_open_joining(self, session: str) -> dict[str, Any]:
        """Makes the loop of a bound that joins tensors of the gradients' sizes, and splits them, as groups need it."""
        step = functions.make_joining_step(self._trainable, self._member)
        self._loops[session] = loops.CustomLoop(step, self._member, 1, None), False
        return {}

    def do_open_exchanging(self, session: str, options: dict[str, Any]) -> dict[str, Any]:
        """Makes the loop of a bound that only all-reduces tensors of the gradients' sizes, with tfsched."""
        import tfsched

        step = functions.make_exchanging_step(self._trainable, self._member)
        self._loops[session] = loops.CustomLoop(step, self._member, 1, tfsched.Options(**options)), True
        return {}

    def do_listen(self, session: str) -> dict[str, Any]:
        """Host and port at which the other workers' TCP connections of that bound reach this one."""
        del session
        self._listening = socket.create_server((self._host, 0))
        return {"address": self._listening.getsockname()[:2]}

    def do_connect(self, session: str, addresses: list[tuple[str, int]], sent_bytes: int) -> dict[str, Any]:
        """Makes the loop of a bound that exchanges bytes over plain TCP; all workers listen."""
        assert self._listening is not None
        with self._listening as listening:
            there = [(host, port) for host, port in addresses]
            self._loops[session] = TcpLoop(listening, there, self._index, self._member, sent_bytes), False
        return {}

    def _counters(self) -> dict[str, int]:
        """What tfsched has exchanged in this process so far; nothing where it is not loaded."""
        if self._protocol != TFSCHED:
            return dict.fromkeys(_COUNTERS, 0)
        import tfsched

        stats = tfsched.stats()
        return {name: int(stats[name]) for name in _COUNTERS}

    def do_run(
        self, session: str, count: int = 1, batch: int | None = None, beside: str = "", times: int = 0
    ) -> dict[str, Any]:
        """Runs `count` consecutive steps, a block, from when all workers are ready; `times` steps of `beside` meanwhile.

        Returns:
            `starts_s`, `finishes_s` and `ends_s`: when each step began, had its gradients (nothing in Model.fit), and
            returned, by the clock that all processes of a machine share; `drained_s`: when the last step's updates were
            applied; `exchanged`: tensors that tfsched all-reduced, one by one; `unscheduled`: whether it all-reduced none
            but should.
        """
        loop, scheduled = self._loops[session]
        before = self._counters()
        with self._meanwhile(beside, times):
            run = loop.run(count, batch)
            drained_s = run.ends_s[-1]
            if scheduled:  # across the barrier updates outlast the last step, and so the block does
                import tfsched

                tfsched.drain()
                drained_s = time.monotonic()
        made = {name: value - before[name] for name, value in self._counters().items()}
        return {
            "starts_s": run.starts_s,
            "finishes_s": run.finishes_s,
            "ends_s": run.ends_s,
            "drained_s": drained_s,
            "exchanged": made["all_reduces"],
            "unscheduled": scheduled and not made["packs_scheduled"],
        }

    @contextlib.contextmanager
    def _meanwhile(self, session: str, count: int) -> Iterator[None]:
        """Within it, a thread of its own runs `count` steps of a custom loop, which all workers do alike; ends with them."""
        if not session:
            yield
            return
        loop, _ = self._loops[session]
        assert isinstance(loop, loops.CustomLoop)
        self._member.together()
        with futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(lambda: [loop.step() for _ in range(count)])
            yield
        running.result()

    def do_plan(self, session: str, algorithm: str, steps: int) -> dict[str, Any]:
        """Traces steps that all workers run, and returns the plan that the first one makes of its own."""
        trace = self._trace(session, steps)
        if trace is None:
            return {"plan": ""}
        from tfsched.bench.plans import make_plan

        return {"plan": make_plan(trace, algorithm)}

    def do_trace(self, session: str, steps: int, path: str) -> dict[str, Any]:
        """Traces steps that all workers run; the first one saves its own."""
        trace = self._trace(session, steps)
        if trace is not None:
            trace.save(path)
        return {}

    def _trace(self, session: str, steps: int) -> Any:
        """The first worker's trace of steps that all workers run; None on the others."""
        loop, _ = self._loops[session]
        assert isinstance(loop, loops.CustomLoop)  # others are refused before anything starts
        self._member.together()
        if self._index > 0:
            for _ in range(steps + 1):  # a trace begins with one that is not recorded
                loop.step()
            return None
        from tfsched.tracing import trace_function

        return trace_function(loop.step, steps=steps)

    def do_close(self, session: str) -> dict[str, Any]:
        """Forgets a setting's loop."""
        del self._loops[session]
        return {}

    def do_digest(self) -> dict[str, Any]:
        """Of the values of all variables that are trained: the same on every worker, or something is wrong."""
        digest = hashlib.sha256()
        for variable in self._trainable:
            digest.update(tf.convert_to_tensor(variable).numpy().tobytes())
        return {"digest": digest.hexdigest()}
