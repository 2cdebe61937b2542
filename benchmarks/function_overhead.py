"""What tfsched costs a tf.function that needs nothing: ``python benchmarks/function_overhead.py [--connected]``.

A small local function, called in three ways that take turns in one process: as stock TensorFlow calls it (what tfsched
wraps of TensorFlow is put back), with tfsched disabled, and enabled. No other task takes part, so the pass has nothing to
do, and calls should take what they take without it; the traced graph has to be the same. With ``--connected`` the process
belongs to a cluster, of itself alone, as a coordinator does: then each call carries tfsched's options.

Every call is timed. A turn is a block of calls in each way, in all six orders one after another, and what it says is the
ratio of the median calls to stock's: so neither a slow phase of the machine nor single calls that are held up decide,
and no way always follows the same. Each process is another draw of addresses and hash seeds, and its median ratio over its
turns is one sample. Printed: of each way the median µs a call, the mean of the samples, its 95 % interval (Student's
t) and the samples. Exit code 1 if a graph differs.

Each process keeps to `--cores` cores: with several, on which of them a function's threads wake up varies by more than is
looked for. Needs scipy (the extra `test`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np

WAYS = ("stock", "disabled", "enabled")
_ORDERS = tuple(itertools.permutations(WAYS))
_SETTLING = 5  # calls after a switch that are not counted
_LIMIT_S = 900


class Ways:
    """Switches between the ways of calling a function."""

    def __init__(self) -> None:
        from tensorflow.python.eager import context

        import tfsched

        self._tfsched = tfsched
        # What a call passes through that tfsched wraps.
        self._place = (context.Context, "call_function")
        stock = getattr(*self._place)
        tfsched.enable()
        tfsched.disable()
        self._wraps = {False: stock, True: getattr(*self._place)}

    def choose(self, way: str) -> None:
        """Has functions called in this way from now on."""
        if way == "enabled":
            self._tfsched.enable()
        else:
            self._tfsched.disable()
        setattr(*self._place, self._wraps[way != "stock"])


def make_function() -> Any:
    """A training step of a small layer, with a variable and an update of it."""
    import tensorflow as tf

    weights = tf.Variable(tf.ones([64, 64]), name="weights")

    @tf.function
    def step(inputs: tf.Tensor) -> tf.Tensor:
        outputs = tf.nn.relu(tf.linalg.matmul(inputs, weights))
        weights.assign_sub(1e-6 * tf.linalg.matmul(inputs, outputs, transpose_a=True))
        return tf.reduce_mean(outputs)

    return step


def traced_graph(step: Any) -> bytes:
    """The function's graph."""
    import tensorflow as tf

    graph = step.get_concrete_function(tf.TensorSpec([64, 64])).graph.as_graph_def()
    content: bytes = graph.SerializeToString(deterministic=True)
    return content


def median_call_s(step: Any, inputs: Any, calls: int) -> float:
    """The median of `calls` calls, one after another."""
    for _ in range(_SETTLING):
        step(inputs)
    times_s = np.empty(calls)
    clock = time.perf_counter
    for number in range(calls):
        begin_s = clock()
        step(inputs)
        times_s[number] = clock() - begin_s
    return float(np.median(times_s))


def connect() -> None:
    """Makes this process a cluster of its own."""
    import tensorflow as tf

    import tfsched
    from tfsched.bench.ports import free_port

    resolver = tfsched.cluster_resolver({"chief": [f"127.0.0.1:{free_port()}"]}, "chief", 0)
    tf.config.experimental_connect_to_cluster(resolver, job_name="chief", make_master_device_default=False)


def measure(calls: int, turns: int, connected: bool) -> dict[str, Any]:
    """Way -> median seconds of a call, of each turn; and whether the graphs are the same."""
    import tensorflow as tf

    if connected:
        connect()
    ways = Ways()
    graphs = set()
    for way in WAYS:
        ways.choose(way)
        fresh = make_function()
        fresh(tf.ones([64, 64]))
        graphs.add(traced_graph(fresh))
    step, inputs = make_function(), tf.ones([64, 64])
    for way in WAYS:  # warm: each config is an instantiation of its own
        ways.choose(way)
        median_call_s(step, inputs, calls)
    turns_s: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(turns):
        for way in _ORDERS[turn % len(_ORDERS)]:
            ways.choose(way)
            turns_s[way].append(median_call_s(step, inputs, calls))
    return {"turns_s": turns_s, "unchanged": len(graphs) == 1}


def measured_apart(args: argparse.Namespace) -> dict[str, Any]:
    """What `measure` gives in a process of its own."""
    command = [sys.executable, __file__, "--one", "--calls", str(args.calls), "--turns", str(args.turns)]
    command += ["--cores", str(args.cores), *(["--connected"] if args.connected else [])]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_LIMIT_S, check=True).stdout
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def interval(samples: np.ndarray) -> tuple[float, float]:
    """Where the mean of such samples lies with a probability of 95 %, by Student's t; of one sample nothing is known."""
    from scipy import stats

    if len(samples) < 2:
        return float("-inf"), float("inf")
    half = float(stats.t.ppf(0.975, len(samples) - 1) * np.std(samples, ddof=1) / np.sqrt(len(samples)))
    return float(np.mean(samples)) - half, float(np.mean(samples)) + half


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description="What tfsched costs a tf.function that needs nothing.")
    parser.add_argument("--calls", type=int, default=50, help="calls in a block")
    parser.add_argument("--turns", type=int, default=120, help="blocks of each way in a process")
    parser.add_argument("--processes", type=int, default=10, help="how many, one after another")
    parser.add_argument("--cores", type=int, default=1, help="that a process may use")
    parser.add_argument("--connected", action="store_true", help="the process belongs to a cluster")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if min(args.calls, args.turns, args.processes, args.cores) < 1:
        parser.error("give at least one call, turn, process and core")
    if args.one:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-args.cores :])
        print(json.dumps(measure(args.calls, args.turns, args.connected)))
        return 0
    found = [measured_apart(args) for _ in range(args.processes)]
    steps = args.calls * args.turns
    where = "of a cluster's coordinator" if args.connected else "of a process by itself"
    print(f"a local tf.function {where}: {args.processes} processes of {steps} calls in each way, on {args.cores} core(s)\n")
    print("| | median µs a call | by stock's | 95 % of it | processes |\n|---|---|---|---|---|")
    for way in WAYS:
        median_us = 1e6 * float(np.median(np.concatenate([one["turns_s"][way] for one in found])))
        samples = np.array([np.median(np.divide(one["turns_s"][way], one["turns_s"]["stock"])) for one in found])
        low, high = interval(samples)
        each = " ".join(f"{sample:.4f}" for sample in sorted(samples))
        print(f"| {way} | {median_us:.1f} | {np.mean(samples):.4f} | {low:.4f} to {high:.4f} | {each} |")
    unchanged = all(one["unchanged"] for one in found)
    print(f"\ntraced graph: {'unchanged' if unchanged else 'CHANGED'}")
    return 0 if unchanged else 1


if __name__ == "__main__":
    sys.exit(main())
