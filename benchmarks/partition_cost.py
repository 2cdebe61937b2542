"""What cutting transfers into chunks costs by itself: ``python benchmarks/partition_cost.py [--help]``.

Two tables. The first is the ops alone, in one process: split and merge of one tensor against a proxy. The second is a step
that pulls variables from a parameter server in another process over loopback and computes nothing, in chunks against whole.
All rows of a table are measured by turns, so that a machine that slows down slows all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tfsched.bench.ports import free_ports

TIMEOUT_MS = 120_000
COPIES = 16  # of the ops in one run, so that the run itself weighs less


def sizes(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensors", type=sizes, default=[65536, 1_000_000, 16_000_000], help="sizes of tensors in bytes")
    parser.add_argument("--partitions", type=sizes, default=[16384, 65536, 262144, 1_000_000, 4_000_000], help="bytes")
    parser.add_argument("--transfers", type=int, default=24, help="variables that a step pulls")
    parser.add_argument("--bytes", type=int, default=4_000_000, help="size of each of them")
    parser.add_argument("--credit", type=int, default=1_000_000, help="bytes; 0 for no limit")
    parser.add_argument("--policy", default="tictac")
    parser.add_argument("--steps", type=int, default=30, help="of which the median is taken")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    return parser.parse_args()


def medians_us(runs: dict[Any, Callable[[], Any]], count: int) -> dict[Any, float]:
    """The median time of each, run by turns."""
    times: dict[Any, list[float]] = {key: [] for key in runs}
    for number in range(count + 2):
        for key, run in runs.items():
            start = time.perf_counter()
            run()
            if number >= 2:  # the first two build graphs and fill caches
                times[key].append((time.perf_counter() - start) * 1e6)
    return {key: statistics.median(values) for key, values in times.items()}


def print_row(*cells: Any) -> None:
    print("| " + " | ".join(f"{cell:,.1f}" if isinstance(cell, float) else f"{cell}" for cell in cells) + " |", flush=True)


def print_head(*cells: str) -> None:
    print_row(*cells)
    print_row(*["---"] * len(cells))


def measure_ops(options: argparse.Namespace) -> None:
    """Split and merge against a proxy, without a network in between."""
    import tensorflow as tf

    from tfsched._rules import chunks_of
    from tfsched.ops import library

    ops = library.load()
    tag = {"transfer": "t:0", "receiver": "r", "policy": "fifo", "rank": 0, "credit_bytes": 0}
    config = tf.compat.v1.ConfigProto()
    # The copies are all alike: no optimizer may make one of them.
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    print("\nSplit and merge in one process, microseconds of one tensor\n")
    print_head("tensor bytes", "chunk bytes", "chunks", "whole", "in chunks", "added", "added per chunk")
    for size_bytes in options.tensors:
        shape = [size_bytes // 4]
        numbers = list(dict.fromkeys(chunks_of(size_bytes, partition_bytes) for partition_bytes in options.partitions))
        with tf.Graph().as_default() as graph:
            value = tf.compat.v1.get_local_variable("value", initializer=tf.zeros(shape), use_resource=True)
            read = value.read_value()
            fetches: dict[int, Any] = {}
            for number in [0, *numbers]:
                made = []
                for _ in range(COPIES):
                    if number == 0:
                        made.append(ops.tfsched_proxy(input=read, count=1, **tag))
                    else:
                        chunks = ops.tfsched_split(input=read, N=number, shape=shape, count=number, **tag)
                        made.append(ops.tfsched_merge(chunks=chunks, shape=shape))
                fetches[number] = tf.group(*made)
            with tf.compat.v1.Session(graph=graph, config=config) as session:
                session.run(tf.compat.v1.local_variables_initializer())
                calls = {number: session.make_callable(fetch) for number, fetch in fetches.items()}
                times = {number: us / COPIES for number, us in medians_us(calls, options.steps).items()}
        for number in numbers:
            added = times[number] - times[0]
            print_row(size_bytes, size_bytes // number, number, times[0], times[number], added, added / number)


def cluster_of() -> dict[str, list[str]]:
    return {job: [f"127.0.0.1:{port}"] for job, port in zip(("ps", "worker"), free_ports(2), strict=True)}


def serve(cluster: dict[str, list[str]]) -> None:
    """The parameter server: until the parent closes stdin."""
    import tfsched

    server = tfsched.Server(cluster, job_name="ps", task_index=0)
    print(server.target, flush=True)
    sys.stdin.read()
    os._exit(0)


def started_server(cluster: dict[str, list[str]]) -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve", json.dumps(cluster)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    for line in server.stdout:
        if line.startswith("grpc"):
            return server
    raise SystemExit("The parameter server ended before it was ready; its reason is above.")


def sessions(options: argparse.Namespace, target: str) -> Iterator[tuple[int, Any, Callable[[], Any]]]:
    """For each size of chunks, 0 first, a session that pulls all variables in one step."""
    import tensorflow as tf

    import tfsched

    for partition_bytes in [0, *options.partitions]:
        with tf.Graph().as_default() as graph:
            pulled = []
            with tf.device("/job:ps/task:0"):
                shape = [options.bytes // 4]
                variables = [
                    tf.compat.v1.get_variable(f"v{number}", shape, initializer=tf.zeros_initializer(), use_resource=True)
                    for number in range(options.transfers)
                ]
                reads = [variable.read_value() for variable in variables]
            with tf.device("/job:worker/task:0"):
                for read in reads:
                    pulled.append(tf.raw_ops.Identity(input=read).op)
                step = tf.group(*pulled)
            config = tfsched.session_config(
                tfsched.Options(
                    policy=options.policy, credit_bytes=options.credit, partition_bytes=partition_bytes, strict=True
                ),
                tf.compat.v1.ConfigProto(operation_timeout_in_ms=TIMEOUT_MS),
            )
            # The step is nothing but identities, which the other optimizers would take out.
            config.graph_options.rewrite_options.optimizers.append("tfsched")
            session = tf.compat.v1.Session(target, graph=graph, config=config)
            if partition_bytes == 0:
                session.run(tf.compat.v1.global_variables_initializer())
            yield partition_bytes, session, session.make_callable(step)


def measure_steps(options: argparse.Namespace) -> None:
    """Whole steps between two processes."""
    import tfsched

    cluster = cluster_of()
    server = started_server(cluster)
    try:
        worker = tfsched.Server(cluster, job_name="worker", task_index=0)
        opened = list(sessions(options, worker.target))
        times = medians_us({size: call for size, _, call in opened}, options.steps)
        from tfsched._rules import chunks_of

        print(f"\nA step of {options.transfers} transfers of {options.bytes:,} bytes over loopback, microseconds\n")
        print_head("chunk bytes", "chunks of a transfer", "step", "added to the step", "per transfer", "per chunk")
        for size, session, _ in opened:
            number = chunks_of(options.bytes, size) if size else 1
            added = times[size] - times[0]
            print_row(
                size or "whole", number, times[size], added, added / options.transfers, added / options.transfers / number
            )
            session.close()
    finally:
        server.kill()
        server.wait(20)


def main() -> None:
    options = arguments()
    if options.serve:
        serve(json.loads(options.serve))
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    measure_ops(options)
    measure_steps(options)
    sys.stdout.flush()
    os._exit(0)  # a server cannot be stopped from Python


if __name__ == "__main__":
    main()
