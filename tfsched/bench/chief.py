"""What worker 0 does for the bench: builds graphs, opens sessions, runs and traces steps."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any

import tensorflow as tf

from tfsched.bench import graphs, op_times
from tfsched.bench.errors import BenchError
from tfsched.bench.models import find_model
from tfsched.bench.plans import make_plan
from tfsched.bench.settings import crosses_barrier

tf1 = tf.compat.v1


class Chief:
    """Answers the requests of `Cluster.call`: `do_X` those with `do` X, the rest are its arguments."""

    def __init__(
        self,
        targets: dict[str, str],
        ps: int,
        workers: int,
        timeout_s: float,
    ) -> None:
        self._targets = targets
        self._ps = ps
        self._workers = workers
        self._timeout_s = timeout_s
        self._graphs: dict[str, graphs.Built] = {}
        self._sessions: dict[str, tuple[tf.compat.v1.Session, graphs.Built]] = {}
        self._crossing: set[str] = set()  # sessions whose steps return before their updates
        self._initialized: set[tuple[str, str]] = set()
        tf1.disable_eager_execution()
        tf1.logging.set_verbosity(tf1.logging.ERROR)

    def do_build(
        self,
        graph: str,
        model: str,
        phase: str,
        batch: int | None,
        seed: int,
        balanced: bool = False,
        variables: list[Any] | None = None,
    ) -> dict[str, Any]:
        """Builds graph "step", "compute", "communication" or "exchange" (the last two of `variables`, or of the first's)."""
        described = find_model(model)
        if graph == "step":
            assert batch is not None
            built = graphs.build_step(described, phase, batch, self._ps, self._workers, seed, balanced)
        elif graph == "compute":
            built = graphs.build_compute_alone(described, phase, batch, self._workers, seed)
        else:
            moved = self._graphs["step"].variables if variables is None else graphs.from_json(variables)
            make = graphs.build_exchange if graph == "exchange" else graphs.build_communication_alone
            built = make(moved, self._workers)
        self._graphs[graph] = built
        self._initialized = {made for made in self._initialized if made[1] != graph}
        return {
            "variable_bytes": built.variable_bytes,
            "bytes_by_device": built.bytes_by_device(),
            "variables": len(built.variables),
            "operations": len(built.graph.get_operations()),
        }

    def _config(self, plain: bool) -> tf.compat.v1.ConfigProto:
        config = tf1.ConfigProto()  # threads are the servers' (task.py): a session cannot change their pools
        if plain:
            config.graph_options.rewrite_options.disable_meta_optimizer = True
            config.graph_options.optimizer_options.opt_level = tf1.OptimizerOptions.L0
        return config

    def do_open(
        self,
        session: str,
        graph: str,
        protocol: str,
        options: dict[str, Any] | None = None,
        plain: bool = False,
    ) -> dict[str, Any]:
        """Opens a session; `plain` switches every graph optimizer off."""
        built = self._graphs[graph]
        target = self._targets[protocol]
        if (protocol, graph) not in self._initialized:
            # In a session of its own: a setting's pass must meet only the graph it is made for.
            with tf1.Session(target, graph=built.graph, config=self._config(True)) as initial:
                initial.run(built.initializer)
            self._initialized.add((protocol, graph))
        config = self._config(plain)
        if options is not None:
            import tfsched

            config = tfsched.session_config(tfsched.Options(**options), base=config)
        self.do_close(session)
        self._sessions[session] = (
            tf1.Session(target, graph=built.graph, config=config),
            built,
        )
        if crosses_barrier(options):
            self._crossing.add(session)
        return {}

    def do_close(self, session: str) -> dict[str, Any]:
        opened = self._sessions.pop(session, None)
        self._crossing.discard(session)
        if opened is not None:
            opened[0].close()
        return {}

    def _drain(self, session: str) -> None:
        """Waits for the updates of a session's last step, where they may still be on their way."""
        if session in self._crossing:
            import tfsched

            tfsched.drain(self._sessions[session][0], timeout_s=self._timeout_s)

    def do_run(
        self, session: str, fetch: str, count: int = 1, batch: int | None = None, beside: Sequence[tuple[str, str]] = ()
    ) -> dict[str, Any]:
        """Runs `count` consecutive steps, a block. `beside`: (session, fetch) pairs that run over and over meanwhile.

        Returns:
            `steps_s`: seconds until each step returned; `ends_s`: the same since the block's begin; `block_s`: seconds of
            all until the last update is applied, whether or not the step waits for it; `finishes_s`: each worker's
            finish time since its step's start.
        """
        opened, built = self._sessions[session]
        feeds = {} if built.batch is None else {built.batch: batch}
        fetches = built.fetches[fetch]
        steps_s, ends_s, finishes_s = [], [], []
        with self._over_and_over(beside):
            block_begin_s = time.perf_counter()
            for _ in range(count):
                began_s, begin_s = time.time(), time.perf_counter()
                values = opened.run(fetches, feeds)
                end_s = time.perf_counter()
                steps_s.append(end_s - begin_s)
                ends_s.append(end_s - block_begin_s)
                if isinstance(values, dict):
                    finishes_s.append([float(finish) - began_s for finish in values["finish"]])
                    if not all(map(_finite, values["losses"])):
                        raise BenchError(f"the loss became {values['losses']}: lower --steps")
            self._drain(session)
            block_s = time.perf_counter() - block_begin_s
        return {"steps_s": steps_s, "ends_s": ends_s, "block_s": block_s, "finishes_s": finishes_s}

    @contextlib.contextmanager
    def _over_and_over(self, runs: Sequence[tuple[str, str]]) -> Iterator[None]:
        """Within it, threads of their own run these fetches of sessions again and again."""
        over = threading.Event()

        def repeat(session: str, fetch: str) -> None:
            opened, built = self._sessions[session]
            while not over.is_set():
                opened.run(built.fetches[fetch])

        with futures.ThreadPoolExecutor(max(1, len(runs))) as pool:
            running = [pool.submit(repeat, *run) for run in runs]
            try:
                yield
            finally:
                over.set()
        for one in running:
            one.result()
        for session, _ in runs:
            self._drain(session)

    def do_plan(self, session: str, algorithm: str, steps: int) -> dict[str, Any]:
        """Traces steps of an open session and returns the plan that `algorithm` makes of them."""
        import tfsched

        opened, built = self._sessions[session]
        return {"plan": make_plan(tfsched.trace_steps(opened, built.fetches["step"], steps), algorithm)}

    def do_trace(self, session: str, steps: int, path: str) -> dict[str, Any]:
        """Traces steps of an open session and saves the trace, the last step's background update included."""
        from tfsched.tracing.tracer import Recorder

        opened, built = self._sessions[session]
        recorder = Recorder()
        for _ in range(steps):
            recorder.run(opened.run, built.fetches["step"])
        self._drain(session)
        recorder.finish(opened).save(path)
        return {}

    def do_sample(self, session: str) -> dict[str, Any]:
        """Runs one step with a full trace and returns its own op times and bounds."""
        opened, built = self._sessions[session]
        metadata = tf1.RunMetadata()
        opened.run(
            built.fetches["step"],
            options=tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE),
            run_metadata=metadata,
        )
        sample = op_times.sample_of_step(metadata.step_stats, "/job:worker/replica:0/task:0")
        return {
            "makespan_s": sample.makespan_s,
            "compute_s": sample.compute_s,
            "links_s": sample.links_s,
        }


def _finite(value: Any) -> bool:
    return bool(value - value == 0)
