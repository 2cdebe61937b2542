"""Trains for many steps and compares bits: ``python -m tests.fuzz.bits --steps 200``.

Two workers have the variables of stock TensorFlow, whatever the optimizer, the precision and the barrier. More workers have
one another's, with the barrier kept and crossed, and in every run.
"""

import concurrent.futures
import sys
import threading
import time

from absl import app, flags

from tests.cluster.cluster import STOCK, TFSCHED, Cluster, TaskDied, TaskError, task_environment
from tests.cluster.nurseries import Nurseries

KEPT, CROSSED = {}, {"barrier": False}
KINDS = (
    "sgd",
    "momentum",
    "adam",
    "sgd bfloat16",
    "momentum bfloat16",
    "adam bfloat16",
    "mixed precision",
    "moving averages",
    "adamw",
    "embedding",
    "clip norms",
    "clip global norm",
    "clip sums",
    "jit gradients",
    "jit update",
    "two optimizers",
)
_LIMIT_S = 300  # of one training; longer is a hang


def everywhere(cluster, scenario, **arguments):
    """Lets every worker run the scenario; their results."""
    pending = [cluster.submit(name, scenario, **arguments) for name in cluster.names]
    return [one.result(_LIMIT_S) for one in pending]


def trained(cluster, kind, options, steps):
    """(what each step has shown, all variables at the end) of each worker."""
    everywhere(cluster, "mirrored_kinds.open_training", kind=kind, options=options)
    shown = everywhere(cluster, "mirrored_crossing.steps", count=steps)
    ends = everywhere(cluster, "mirrored_crossing.variables")
    return [(one["shown"], end) for one, end in zip(shown, ends, strict=True)]


def first_difference(wanted, got):
    """Where two trainings of :func:`trained` differ, in words; empty where they do not."""
    for worker, ((shown, end), (other_shown, other_end)) in enumerate(zip(wanted, got, strict=True)):
        for step, (one, other) in enumerate(zip(shown, other_shown, strict=True)):
            if one != other:
                return f"worker {worker} differs from step {step} on"
        for number, (one, other) in enumerate(zip(end, other_end, strict=True)):
            if one != other:
                return f"worker {worker} differs in variable {number} after the last step"
    return ""


def check(ours, stock, kind, steps):
    """What is not as promised of a kind of training, one line each. ``stock`` is None for more than two workers."""
    wanted = trained(stock, kind, None, steps) if stock else trained(ours, kind, KEPT, steps)
    runs = {"kept": KEPT, "crossed": CROSSED} if stock else {"kept, again": KEPT, "crossed": CROSSED}
    found = []
    for name, options in runs.items():
        got = trained(ours, kind, options, steps)
        difference = first_difference(wanted, got)
        if difference:
            found.append(f"barrier {name}: {difference}")
        if len({str(end) for _, end in got}) > 1:
            found.append(f"barrier {name}: the workers' variables differ")
    return found


def main(argv):
    """Prints a line for each kind and, at the end, one more; the exit code is 1 if anything differed."""
    del argv
    begin_s, lock = time.monotonic(), threading.Lock()
    done, findings = [], []

    def report(workers, kind, lines):
        with lock:
            done.append(kind)
            findings.extend(lines)
            print(f"{workers} workers, {kind}: {'FINDING' if lines else 'ok'}", *lines, sep="\n  ! ", flush=True)

    def lane(nursery, workers):
        with Cluster(ps=0, workers=workers, nursery=nursery, mirrored=True, protocol=TFSCHED) as ours:
            if workers > 2:
                _all_kinds(ours, None, workers, report)
                return
            with Cluster(ps=0, workers=workers, nursery=nursery, mirrored=True, protocol=STOCK) as stock:
                _all_kinds(ours, stock, workers, report)

    with Nurseries(task_environment()) as nursery, concurrent.futures.ThreadPoolExecutor(flags.FLAGS.jobs) as pool:
        for one in [pool.submit(lane, nursery, int(workers)) for workers in flags.FLAGS.workers]:
            one.result()
    took_s = time.monotonic() - begin_s
    print(f"bits: {len(done)} trainings of {flags.FLAGS.steps} steps, {len(findings)} findings, {took_s:.0f} s")
    return 1 if findings else 0


def _all_kinds(ours, stock, workers, report):
    for kind in flags.FLAGS.kinds:
        try:
            report(workers, kind, check(ours, stock, kind, flags.FLAGS.steps))
        except (TimeoutError, TaskDied, TaskError) as error:
            report(workers, kind, [f"{type(error).__name__}: {error}"])
            return  # the group may be broken


if __name__ == "__main__":
    flags.DEFINE_list("workers", ["2", "3", "4"], "How many workers train together.")
    flags.DEFINE_list("kinds", list(KINDS), "Which kinds of training (tests/cluster/scenarios/mirrored_kinds.py).")
    flags.DEFINE_integer("steps", 200, "How many steps.", lower_bound=1)
    flags.DEFINE_integer("jobs", 1, "How many clusters train at once.", lower_bound=1)
    app.run(lambda argv: sys.exit(main(argv)))
