"""A training that tunes itself from a bad first setting: ``python benchmarks/autotune_online.py`` (root: it limits links).

One row for each first setting of a session with a parameter server and a worker, and of two workers that all-reduce
(MultiWorkerMirroredStrategy). Each trains a perceptron for --steps steps under tfsched.autotune. Behind that, the first
setting, the chosen one and a small grid take turns, block by block, so that they meet the same conditions; a step's time is
the median over all blocks.

Behind "first", "chosen" and "best of grid" stand such medians. "while tuning" is the mean step until the decision, with
changes; "decided after" says how many steps that were. "lost" is what tuning has cost, as a part of --steps steps under the
chosen setting: what steps took beyond the best setting that was known, and changes. "behind" is what all steps took beyond
as many under the chosen setting; before there was a better one they ran under the first. "won" is by which part they took
less than as many under the first setting. Sessions' pieces are part of their graphs, so they are not searched.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from limited_hosts import start_tasks

from tfsched.bench.links import parse_bandwidth
from tfsched.bench.testbed import Testbed

SERVERS, ALL_REDUCE = KINDS = ("servers", "all-reduce")
FIRST: dict[str, list[dict[str, Any]]] = {
    SERVERS: [{"policy": "fifo"}, {"policy": "bytescheduler", "credit_bytes": 100_000_000, "partition_bytes": 250_000}],
    ALL_REDUCE: [
        {"policy": "bytescheduler", "credit_bytes": 16_384, "partition_bytes": 16_384},
        {"policy": "fifo", "partition_bytes": 64_000_000},
    ],
}
CREDITS, PIECES = (250_000, 1_000_000, 4_000_000, 16_000_000), (125_000, 500_000, 2_000_000)
_LIMIT_S = 1500.0
_FEW = 20  # steps that are timed before tuning


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="A training that tunes itself, from a bad first setting on.")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--bandwidth", default="1gbit")
    parser.add_argument("--model", default="mlp8x500", help="a perceptron of tfsched bench: layers x width")
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=4, help="turns of all settings behind the training")
    parser.add_argument("--block", type=int, default=5, help="steps of a setting in a turn that are timed")
    parser.add_argument("--barrier", default="on", choices=["on", "off"])
    parser.add_argument("--samples", type=int, default=100, help="the tuner's budget")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", default="", help="write all results to this file")
    parser.add_argument("--task", default="", help=argparse.SUPPRESS)  # of a process that this program starts
    return parser.parse_args()


def main() -> None:
    """Print the table row by row."""
    args = parse_arguments()
    if args.task:
        run_task(json.loads(args.task))
        return
    print(f"{args.model}, batch {args.batch}, {args.bandwidth}, {args.steps} steps, barrier {args.barrier}\n")
    print("| | first | s | decided after | while tuning, s | chosen | s | best of grid | s | lost | behind | won |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    results = []
    for kind in args.kinds:
        for first in FIRST[kind]:
            row = run_cluster(kind, first, args)
            results.append({"kind": kind, "first": first, **row})
            print(
                f"| {kind} | {row['first']} | {row['first_s']:.4f} | {row['decided_after']} steps | {row['tuning_s']:.4f} "
                f"| {row['chosen']} | {row['chosen_s']:.4f} | {row['best']} | {row['best_s']:.4f} | {row['lost']:.1%} "
                f"| {row['behind']:.1%} | {row['won']:.1%} |",
                flush=True,
            )
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1), encoding="utf-8")


def run_cluster(kind: str, first: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """Starts the tasks on hosts behind limited links; what the one that decides measured."""
    names = ["ps0", "worker0"] if kind == SERVERS else ["worker0", "worker1"]
    with Testbed(names, parse_bandwidth(args.bandwidth)) as hosts:
        processes = start_tasks(hosts, __file__, {"kind": kind, "first": first, **vars(args)})
        printed, _ = processes["worker0"].communicate(timeout=_LIMIT_S)
        if processes["worker0"].returncode:
            raise SystemExit(f"the task that decides ended with code {processes['worker0'].returncode}")
        row: dict[str, Any] = json.loads(printed.splitlines()[-1])
        return row


def run_task(task: dict[str, Any]) -> None:
    """What each process does: serves, or trains."""
    import tfsched

    if task["job"] == "ps":
        tfsched.Server(task["cluster"], job_name="ps", task_index=0, config=one_thread()).join()
    options = tfsched.Options(barrier=task["barrier"] == "on", **task["first"])
    with make_step(task, options) as (step, session):
        row = measure(task, step, session)
    if task["index"] == 0:
        print(json.dumps(row), flush=True)
    else:
        time.sleep(2)  # for what it has sent last
    os._exit(0)


def one_thread() -> Any:
    """There are few processors, and other tasks need them as well."""
    import tensorflow as tf

    return tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1)


@contextlib.contextmanager
def make_step(task: dict[str, Any], options: Any) -> Iterator[tuple[Callable[[], Any], Any]]:
    """The function that trains a step, and the session, if there is one."""
    import tensorflow as tf

    import tfsched
    from tfsched.bench import functions, graphs, members
    from tfsched.bench.models import find_model

    model = find_model(task["model"])
    if task["kind"] == SERVERS:
        server = tfsched.Server(task["cluster"], job_name="worker", task_index=0, config=one_thread())
        built = graphs.build_step(model, "train", task["batch"], ps=1, workers=1, seed=task["seed"])
        with tf.compat.v1.Session(server.target, graph=built.graph, config=tfsched.session_config(options)) as session:
            session.run(built.initializer)
            yield lambda: session.run(built.fetches["step"]), session
        return
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tfsched.enable(options)
    member = members.join("mirrored", "custom", task["cluster"]["worker"], tfsched.PROTOCOL, task["index"])
    tf.random.set_seed(task["seed"])
    network = member.make(model.make)
    function = tf.function(functions.make_reducing_step(model.input_shape, network.loss, network.trainable, member, True))
    yield lambda: function(batch=task["batch"]), None


def measure(task: dict[str, Any], step: Callable[[], Any], session: Any) -> dict[str, Any]:
    """All that a worker does with its steps. As many in each worker: they take them together."""
    import tfsched
    from tfsched.online import reach as reaching
    from tfsched.tuning import Setting

    def seconds(count: int) -> list[float]:
        taken = []
        for _ in range(count):
            began_s = time.perf_counter()
            step()
            taken.append(time.perf_counter() - began_s)
        return taken

    seconds(5)
    before_s = statistics.median(seconds(_FEW))
    tuner = tfsched.autotune(session, samples=task["samples"], seed=task["seed"])
    began_s = time.perf_counter()
    decided_after, tuning_s = task["steps"], 0.0
    for number in range(task["steps"]):
        with tuner.step():
            step()
        if tuner.decision is not None and not tuning_s:
            decided_after, tuning_s = number + 1, (time.perf_counter() - began_s) / (number + 1)
    total_s = time.perf_counter() - began_s
    tuner.close()
    tuner.wait()

    reach = reaching.of_session(session) if session is not None else reaching.of_cluster()
    pieces = task["kind"] == ALL_REDUCE
    settings: dict[str, Any] = {"first": None, "chosen": tuner.decision.setting if tuner.decision else None}
    own = task["first"].get("partition_bytes", 0)
    for piece_bytes in PIECES if pieces else (own,):
        for credit_bytes in CREDITS:
            setting = Setting(piece_bytes, credit_bytes, "bytescheduler")
            settings[str(setting)] = setting
    taken: dict[str, list[float]] = {name: [] for name in settings}
    for _ in range(task["rounds"]):
        for name, setting in settings.items():
            if reach is not None:
                put_in_force(reach, setting, pieces)
            seconds(2)
            taken[name] += seconds(task["block"])
    medians = {name: statistics.median(values) for name, values in taken.items()}
    best = min(list(settings)[2:], key=lambda name: medians[name])
    decision = tuner.decision
    many = task["steps"]
    return {
        "first": str(decision.first) if decision else str(task["first"]),
        "before_s": before_s,
        "first_s": medians["first"],
        "decided_after": decided_after,
        "tuning_s": tuning_s,
        "chosen": str(decision.setting) if decision else "none",
        "chosen_s": medians["chosen"],
        "best": best,
        "best_s": medians[best],
        "lost": tuner.lost_s / (many * medians["chosen"]),
        "behind": total_s / (many * medians["chosen"]) - 1,
        "won": 1 - total_s / (many * medians["first"]),
        "total_s": total_s,
        "medians": medians,
        "reason": decision.reason if decision else tuner.state,
    }


def put_in_force(reach: Any, setting: Any, pieces: bool) -> None:
    """A setting, or None for what the graphs say."""
    failed = reach.give_back() if setting is None else reach.apply(setting, pieces)
    if failed:
        raise SystemExit(f"these tasks could not be changed: {failed}")


if __name__ == "__main__":
    main()
