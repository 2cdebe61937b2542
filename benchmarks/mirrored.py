"""MultiWorkerMirroredStrategy, stock and with tfsched in one run: medians of interleaved steps on limited links. Needs root.

python benchmarks/mirrored.py [--workers 2] [--bandwidth 1e9] [--layers 24] [--width 1000] [--batch 1500] [--in_a_row 1]

Prints for each part (all-reduce alone, computing alone, training) seconds a step: median, least and most. The bound of the
all-reduce is 2 (W - 1) / W times the gradients' bytes over the link, that of training the larger of it and computing.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time


def work(arguments, index, addresses):
    """One worker's program."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import contextlib

    import tensorflow as tf

    import tfsched

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    resolver = tfsched.cluster_resolver({"worker": addresses}, "worker", index)
    ring = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver, ring)
    width, layers = arguments.width, arguments.layers
    with strategy.scope():
        weights = [
            tf.Variable(tf.random.stateless_normal([width, width], [1, layer]) * width**-0.5) for layer in range(layers)
        ]

    def make(computes, reduces):
        @tf.function
        def step():
            def replica():
                batch = tf.random.stateless_uniform([arguments.batch, width], [index, 2])
                loss, gradients = tf.constant(0.0), [weight * 1e-3 for weight in weights]
                if computes:
                    with tf.GradientTape() as tape:
                        hidden = batch
                        for weight in weights:
                            hidden = tf.nn.relu(hidden @ weight)
                        loss = tf.reduce_mean(hidden * hidden)
                    gradients = tape.gradient(loss, weights)
                if reduces:
                    gradients = tf.distribute.get_replica_context().all_reduce("sum", gradients)
                for weight, gradient in zip(weights, gradients, strict=True):
                    weight.assign_sub(0.01 * gradient)
                return loss

            return strategy.run(replica)

        return step

    def one():
        return tf.distribute.get_replica_context().all_reduce("sum", tf.ones([1]))

    @tf.function
    def together():
        return strategy.run(one)

    parts = {"all-reduce": make(False, True), "computing": make(True, False), "training": make(True, True)}
    settings = {
        "stock": contextlib.nullcontext,
        "tfsched": lambda: tfsched.options(policy=arguments.policy, partition_bytes=arguments.partition_bytes),
        "crossing": lambda: tfsched.options(
            policy=arguments.policy, partition_bytes=arguments.partition_bytes, barrier=False
        ),
    }
    runs = [
        (part, setting)
        for part in arguments.parts.split(",")
        for setting in (settings if part != "computing" else ["stock"])
    ]
    seconds = {run: [] for run in runs}
    for number in range(arguments.steps + 1):  # the first one is for tracing
        for part, setting in runs:
            together()
            began = time.perf_counter()
            with settings[setting]():
                for _ in range(arguments.in_a_row):
                    parts[part]()
            tfsched.drain()
            if number:
                seconds[part, setting].append((time.perf_counter() - began) / arguments.in_a_row)
    together()
    stats = tfsched.stats()
    if index == 0:
        print(
            json.dumps(
                {
                    "seconds": [[*run, statistics.median(each), min(each), max(each)] for run, each in seconds.items()],
                    "stats": {key: stats[key] for key in ("all_reduces", "packs_stock", "reorderings", "tasks")},
                }
            ),
            flush=True,
        )
    time.sleep(1)
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--bandwidth", type=float, default=1e9, help="of each worker's link, in bits per second")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=1500)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument(
        "--in_a_row", type=int, default=1, help="steps measured together, with the last updates; only several can cross"
    )
    parser.add_argument("--parts", default="all-reduce,computing,training", help="which of these, separated by commas")
    parser.add_argument("--policy", default="bytescheduler")
    parser.add_argument("--partition_bytes", type=int, default=0)
    parser.add_argument("--worker", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--addresses", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        work(arguments, arguments.worker, arguments.addresses.split(","))
        return
    from tfsched.bench.testbed import Testbed

    hosts = [f"worker{index}" for index in range(arguments.workers)]
    with Testbed(hosts, arguments.bandwidth) as testbed, tempfile.TemporaryFile() as first:
        addresses = ",".join(f"{testbed.address(host)}:5600" for host in hosts)
        started = [
            testbed.exec(
                host,
                [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--worker", str(index), "--addresses", addresses],
                stdout=first if index == 0 else subprocess.DEVNULL,
            )
            for index, host in enumerate(hosts)
        ]
        for one in started:
            one.wait(60 + 30 * arguments.steps * arguments.in_a_row * arguments.workers)
        first.seek(0)
        told = json.loads(first.read().decode().strip().splitlines()[-1])
    size = arguments.layers * arguments.width**2 * 4
    link = 2 * (arguments.workers - 1) / arguments.workers * size * 8 / arguments.bandwidth
    print(f"{size / 1e6:.0f} MB of gradients, {arguments.workers} workers, {arguments.bandwidth / 1e6:g} Mbit/s: ", end="")
    print(f"an all-reduce takes the link {link:.3f} s")
    for part, setting, median, least, most in told["seconds"]:
        print(f"{part:11s} {setting:8s} {median:.3f} s  ({least:.3f} to {most:.3f})")
    print(told["stats"])


if __name__ == "__main__":
    main()
