"""Changes a link's rate while a training runs: ``python benchmarks/rate_change.py [--rates 1gbit,200mbit,1gbit]``

Needs root. One server and one worker, or two workers that all-reduce, on hosts behind limited links; the barrier is crossed
with the options' defaults. After --steps steps every link gets the next rate, and training goes on. Then trainings start
that have one rate from their beginning to their end.

Columns: the median time of a step in the second half of its rate's steps; how many steps it took until all later ones were
within --within of that in the mean of three; the median of the training that has only had this rate; and the ratio of both.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import statistics
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from limited_hosts import start_tasks

from tfsched.bench.links import parse_bandwidth
from tfsched.bench.testbed import Testbed

SERVERS, ALL_REDUCE = KINDS = ("servers", "all-reduce")
LIMIT_S = 1200
WARMUP = 5


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Changes a link's rate while a training runs.")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--rates", default="1gbit,200mbit,1gbit")
    parser.add_argument("--model", default="mlp12x1000", help="a perceptron of tfsched bench: layers x width")
    parser.add_argument("--batch", type=int, default=250)
    parser.add_argument("--steps", type=int, default=24, help="of each rate")
    parser.add_argument("--within", type=float, default=0.1)
    parser.add_argument("--task", default="", help=argparse.SUPPRESS)  # of a process that this program starts
    return parser.parse_args()


def main() -> None:
    """Print the table."""
    args = parse_arguments()
    if args.task:
        run_task(json.loads(args.task))
        return
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LIMIT_S)
    rates = args.rates.split(",")
    print(f"{args.model}, batch {args.batch}, {args.steps} steps of each rate\n")
    print(
        "| | rate | step, s | steps until settled | step of a training at this rate, s | ratio |\n|---|---|---|---|---|---|"
    )
    for kind in args.kinds:
        changing = train(kind, rates, args)
        alone = {rate: statistics.median(half_of(train(kind, [rate], args)[0])) for rate in dict.fromkeys(rates)}
        for rate, steps_s in zip(rates, changing, strict=True):
            median_s = statistics.median(half_of(steps_s))
            settled = settled_after(steps_s, median_s, args.within)
            ratio = median_s / alone[rate]
            print(f"| {kind} | {rate} | {median_s:.3f} | {settled} | {alone[rate]:.3f} | {ratio:.2f} |", flush=True)


def _too_long(number: int, frame: object) -> None:
    """Ends the program through its context managers."""
    raise SystemExit(f"not done within {LIMIT_S} s")


def half_of(steps_s: list[float]) -> list[float]:
    """The second half."""
    return steps_s[len(steps_s) // 2 :]


def settled_after(steps_s: list[float], median_s: float, within: float) -> int:
    """How many steps there are before all means of three that follow are that near to the median; the first half counts."""
    half = len(steps_s) // 2
    off = [n for n in range(half) if abs(statistics.mean(steps_s[n : n + 3]) / median_s - 1) > within]
    return max(off, default=-1) + 1


def train(kind: str, rates: list[str], args: argparse.Namespace) -> list[list[float]]:
    """The times of the steps of each rate, in seconds; one training."""
    names = ["ps0", "worker0"] if kind == SERVERS else ["worker0", "worker1"]
    with Testbed(names, parse_bandwidth(rates[0])) as hosts:
        count = WARMUP + args.steps * len(rates)
        processes = start_tasks(hosts, __file__, {"kind": kind, "count": count, **vars(args)})
        output = processes["worker0"].stdout
        assert output is not None

        def next_step_s() -> float:
            text = output.readline()
            if not text:
                raise SystemExit("a task ended early; its error is above")
            return float(text)

        for _ in range(WARMUP):
            next_step_s()
        taken = []
        for number, rate in enumerate(rates):
            bandwidth_bps = parse_bandwidth(rate)
            if number and bandwidth_bps is not None:
                for name in names:
                    hosts.limit(name, bandwidth_bps)
            taken.append([next_step_s() for _ in range(args.steps)])
        return taken


def run_task(task: dict[str, Any]) -> None:
    """What each process does: serves, or trains and prints the seconds of each step."""
    import tensorflow as tf

    import tfsched
    from tfsched.bench import functions, graphs, members
    from tfsched.bench.models import find_model

    one_thread = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1)  # there are few processors
    if task["job"] == "ps":
        tfsched.Server(task["cluster"], job_name="ps", task_index=0, config=one_thread).join()
    options, model = tfsched.Options(barrier=False), find_model(task["model"])
    if task["kind"] == SERVERS:
        server = tfsched.Server(task["cluster"], job_name="worker", task_index=0, config=one_thread)
        built = graphs.build_step(model, "train", task["batch"], ps=1, workers=1, seed=0)
        session = tf.compat.v1.Session(server.target, graph=built.graph, config=tfsched.session_config(options))
        session.run(built.initializer)

        def step() -> None:
            session.run(built.fetches["step"])
    else:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tfsched.enable(options)
        member = members.join("mirrored", "custom", task["cluster"]["worker"], tfsched.PROTOCOL, task["index"])
        network = member.make(model.make)
        function = tf.function(
            functions.make_reducing_step(model.input_shape, network.loss, network.trainable, member, True)
        )

        def step() -> None:
            function(batch=task["batch"])

    for _ in range(task["count"]):
        began_s = time.perf_counter()
        step()
        print(time.perf_counter() - began_s, flush=True)
    tfsched.drain()
    time.sleep(2)  # for what it has sent last
    os._exit(0)


if __name__ == "__main__":
    main()
