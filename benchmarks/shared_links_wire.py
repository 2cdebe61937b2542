"""Trains two jobs on one real, limited link: ``python benchmarks/shared_links_wire.py [--bandwidth 40mbit] [--layers 2]``

Needs root. Each job has a parameter server and a worker. The servers live on one host (a network namespace), the workers on
hosts of their own. Both directions of the servers' link send packets marked with code point 46 before all others (htb).
Rows:

* alone: the first job, then the second one, while the other one waits.
* today: both at once.
* shifted: the second one begins half a step later.
* marked: both at once, and the first job's tasks were started with TFSCHED_DSCP=46.

Columns: each job's mean time of a step, its speed (alone over this), their mean, and that of the simulator (`Jobs`), which
knows sizes, bandwidth, and how long the workers compute: what a step takes alone less pulling and pushing on an empty link.
Workers wait instead of computing, between the forward and the backward pass.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tfsched.bench.links import parse_bandwidth
from tfsched.bench.testbed import Testbed, stop_process
from tfsched.ordering.layers import Layer, LayerTable
from tfsched.simulator import Cluster, Control, Job, Jobs, Workload, methods

SIDE = 1000  # a layer is a matrix of SIDE x SIDE floats
BATCH = 8
DSCP = 46
PORT = 7000
START_S = 240  # to start tasks on a busy machine
HTB = (
    "qdisc replace dev {device} root handle 1: htb default 20",
    "class add dev {device} parent 1: classid 1:1 htb rate {rate}",
    "class add dev {device} parent 1:1 classid 1:10 htb rate 1mbit ceil {rate} prio 0 quantum 60000",
    "class add dev {device} parent 1:1 classid 1:20 htb rate 1mbit ceil {rate} prio 1 quantum 60000",
    f"filter add dev {{device}} parent 1: protocol ip u32 match ip tos {DSCP << 2} 0xfc flowid 1:10",
)


def task(args: argparse.Namespace) -> None:
    """A task of one job. A worker reads lines "begin end" (Unix times) and answers with when its steps began and ended."""
    import tensorflow as tf

    import tfsched

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    server = tfsched.Server(json.loads(args.spec), job_name=args.job, task_index=0)
    if args.job == "ps":
        server.join()
    with tf.device("/job:ps/task:0"):
        weights = [
            v1.get_variable(f"w{i}", [SIDE, SIDE], initializer=v1.glorot_uniform_initializer(), use_resource=True)
            for i in range(args.layers)
        ]
    with tf.device("/job:worker/task:0"):
        hidden = tf.ones([BATCH, SIDE])
        for weight in weights:
            hidden = tf.matmul(hidden, weight.read_value())
        hidden = computing(hidden, args.compute_s)
        step = v1.train.GradientDescentOptimizer(1e-6).minimize(tf.reduce_mean(hidden), var_list=weights)
    with v1.Session(server.target, config=tfsched.session_config()) as session:
        session.run(v1.global_variables_initializer())
        session.run(step)
        print("ready", flush=True)
        for line in sys.stdin:  # until the parent ends this task
            begin_s, end_s = (float(word) for word in line.split())
            time.sleep(max(begin_s - time.time(), 0))
            times_s = [time.time()]
            while times_s[-1] < end_s:
                session.run(step)
                times_s.append(time.time())
            print(json.dumps(times_s), flush=True)


def computing(value: Any, seconds: float) -> Any:
    """The value, after a third of the time; its gradient, after the rest. Nothing computes: the machine has few cores."""
    import tensorflow as tf

    def wait(value: Any, part_s: float) -> Any:
        waited = tf.numpy_function(lambda array: [time.sleep(part_s), array][1], [value], value.dtype)
        waited.set_shape(value.shape)
        return waited

    @tf.custom_gradient
    def both(value: Any) -> Any:
        forward = wait(value, seconds / 3)

        def gradient(upstream: Any) -> Any:
            with tf.control_dependencies([forward]):  # the gradient of a mean needs no values
                return wait(upstream, seconds * 2 / 3)

        return forward, gradient

    return both(value)


class Training:
    """A job's two tasks."""

    def __init__(self, bed: Testbed, number: int, args: argparse.Namespace, dscp: int, turn: int) -> None:
        ports = PORT + 10 * turn + 2 * number
        spec = {"ps": [f"{bed.address('s')}:{ports}"], "worker": [f"{bed.address(f'w{number}')}:{ports + 1}"]}
        environment = {**os.environ, "TFSCHED_DSCP": str(dscp), "PYTHONPATH": os.pathsep.join(sys.path)}
        self.processes = [
            bed.exec(
                host,
                [
                    sys.executable,
                    __file__,
                    "--job",
                    job,
                    "--spec",
                    json.dumps(spec),
                    "--layers",
                    str(args.layers),
                    "--compute_s",
                    str(args.compute_s),
                ],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for host, job in (("s", "ps"), (f"w{number}", "worker"))
        ]

    def line(self) -> str:
        """What the worker says next."""
        output = self.processes[1].stdout
        assert output is not None
        text = output.readline()
        if not text:
            raise SystemExit("a worker ended early; its error is above")
        return text

    def train(self, begin_s: float, end_s: float) -> None:
        """Has it train from one Unix time to another."""
        given = self.processes[1].stdin
        assert given is not None
        given.write(f"{begin_s} {end_s}\n")
        given.flush()

    def step_s(self, warm_s: float, end_s: float) -> float:
        """The mean time of the steps that began after `warm_s`, as far as they ended before `end_s` or were the first to."""
        times_s = [at_s for at_s in json.loads(self.line()) if at_s >= warm_s]
        while len(times_s) > 2 and times_s[-1] > end_s:
            times_s.pop()
        return (times_s[-1] - times_s[0]) / (len(times_s) - 1)


def phase(trainings: list[Training], starts_s: list[float | None], seconds: float) -> list[float | None]:
    """Each job's step time; it begins so many seconds after the others, None: not at all."""
    begin_s = time.time() + 1
    end_s = begin_s + seconds
    for training, start_s in zip(trainings, starts_s, strict=True):
        if start_s is not None:
            training.train(begin_s + start_s, end_s)
    return [
        None if start_s is None else training.step_s(begin_s + seconds / 5, end_s)
        for training, start_s in zip(trainings, starts_s, strict=True)
    ]


def simulated(args: argparse.Namespace, bandwidth_bps: float, alone_s: list[float]) -> dict[str, float]:
    """The mean speed of each row, from the time that the jobs, which are alike, need alone."""
    size = SIDE * SIDE * 4
    link_us = 2 * args.layers * size * 8e6 / bandwidth_bps
    compute_us = max(sum(alone_s) / len(alone_s) * 1e6 - link_us, 0.0)
    last = [compute_us if i == args.layers - 1 else 0.0 for i in range(args.layers)]
    workload = Workload.from_layers(LayerTable(Layer(str(i), us / 3, us * 2 / 3, size) for i, us in enumerate(last)))
    together = Jobs([Job(name, workload, Cluster(bandwidth_bps=bandwidth_bps), methods()["tio"]) for name in ("1", "2")])
    half_us = together.alone[0].iteration_us / 2
    return {
        "today": together.beside().mean_speed,
        "shifted": together.beside([Control(), Control(start_us=half_us)]).mean_speed,
        "marked": together.beside([Control(priority=0), Control(priority=1)]).mean_speed,
    }


def too_long(number: int, frame: object) -> None:
    """Ends the program through its context managers."""
    raise SystemExit("a task is silent for too long")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Trains two jobs on one real, limited link.")
    parser.add_argument("--bandwidth", default="40mbit")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--compute_s", type=float, default=1.0, help="how long a worker's step computes")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each row")
    parser.add_argument("--job", default="", help=argparse.SUPPRESS)
    parser.add_argument("--spec", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        task(args)
        return
    bandwidth_bps = parse_bandwidth(args.bandwidth)
    if bandwidth_bps is None:
        raise SystemExit("--bandwidth has no limit; give one, as in 200mbit")
    rows: dict[str, list[float | None]] = {}
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(2 * START_S + round(10 * args.seconds))
    with Testbed(["s", "w0", "w1"], bandwidth_bps) as bed:
        # The first host's link: what it sends, and what the bridge sends to it.
        for namespace, device in ((bed.namespace("s"), "eth0"), (bed.namespace("br"), "port0")):
            for command in HTB:
                words = command.format(device=device, rate=f"{int(bandwidth_bps)}bit").split()
                subprocess.run(["tc", "-n", namespace, *words], check=True, stderr=subprocess.DEVNULL)
        for turn, dscp in enumerate((0, DSCP)):
            trainings = [Training(bed, number, args, dscp * (number == 0), turn) for number in (0, 1)]
            for training in trainings:
                training.line()  # it is ready
            if dscp:
                rows["marked"] = phase(trainings, [0.0, 0.0], args.seconds)
            else:
                first = phase(trainings, [0.0, None], args.seconds)[0]
                rows["alone"] = [first, phase(trainings, [None, 0.0], args.seconds)[1]]
                rows["today"] = phase(trainings, [0.0, 0.0], args.seconds)
                rows["shifted"] = phase(trainings, [0.0, (first or 0.0) / 2], args.seconds)
            for process in (process for training in trainings for process in training.processes):
                stop_process(process)
    alone_s = [step_s or 0.0 for step_s in rows["alone"]]
    expected = simulated(args, bandwidth_bps, alone_s)
    print("| | first, s | second, s | speeds | mean speed | simulated |\n|---|---|---|---|---|---|")
    print(f"| alone | {alone_s[0]:.2f} | {alone_s[1]:.2f} | | | |")
    for name in ("today", "shifted", "marked"):
        step_s = [s or 0.0 for s in rows[name]]
        speeds = [alone / one for alone, one in zip(alone_s, step_s, strict=True)]
        text = ", ".join(f"{100 * speed:.0f}" for speed in speeds)
        mean = sum(speeds) / len(speeds)
        print(f"| {name} | {step_s[0]:.2f} | {step_s[1]:.2f} | {text} | {100 * mean:.0f} | {100 * expected[name]:.0f} |")


if __name__ == "__main__":
    main()
