"""Breaks clusters while they train and counts what became of every step: ``python -m tests.fuzz.chaos --n 1000``."""

import concurrent.futures
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

from absl import app, flags

from tests.cluster.cluster import STOCK, Cluster, TaskDied, TaskError, cut_network, task_environment, wait_until
from tests.cluster.nurseries import Nurseries
from tests.fuzz import chaos_mirrored, chaos_programs, steps_told
from tests.fuzz.running import native_stacks
from tfsched.bench.testbed import Testbed, netns_available

_CALL_S = 90
_MODULE = "tests.fuzz.in_chaos."


class _Session:
    """Two asynchronous workers with sessions of their own. A server that is lost is restored from a checkpoint."""

    def __init__(self, run, cluster, testbed, directory, disk):
        self.run, self.cluster, self.testbed, self.directory, self.disk = run, cluster, testbed, directory, disk
        self.names = ["worker0", "worker1"]
        self.told = steps_told.Told(len(run["sizes"]))
        self._logs, self._saves = 0, 0

    def start(self, restore=None):
        """Starts both loops, the chief's first, for it gives the variables their values."""
        for name in self.names:
            chief = name == "worker0"
            self._begin(name, init=chief and restore is None, restore=restore if chief else None)

    def _begin(self, name, **more):
        index = self.names.index(name)
        self._logs += 1
        path = os.path.join(self.directory, f"{name}-{self._logs}.log")
        self.told.follow(name, path)
        self.cluster.call(
            name,
            _MODULE + "begin",
            limit_s=_CALL_S,
            options=self.run["options"][index],
            sizes=self.run["sizes"],
            log_path=path,
            first=self.told.next_number(index),
            **more,
        )

    def fault(self, name, task, how):
        """One fault, and what the program does about it."""
        cluster = self.cluster
        if name in ("cancel", "shape"):
            cluster.call(task, _MODULE + "put", kind=name, argument=how)
        elif name in ("save", "full disk"):
            self._saves += 1
            where = self.disk if name == "full disk" else self.directory
            cluster.call(task, _MODULE + "put", kind="save", argument=os.path.join(where, f"saved{self._saves}"))
        elif name == "stop":
            cluster.stop(task)
            time.sleep(how)
            cluster.resume(task)
        elif name == "cut":
            cut_network(self.testbed, [task], how)
        elif name == "kill worker":
            cluster.kill(task)
            self.told.lost(task)
            cluster.restart(task)
            self._begin(task)
        else:
            cluster.kill(task)
            cluster.restart(task)
            self.pause()
            self._restore()

    def pause(self):
        """Ends all loops behind their steps."""
        pending = [self.cluster.submit(name, _MODULE + "pause") for name in self.names]
        late = [name for name, one in zip(self.names, pending, strict=True) if not one.result(_CALL_S)]
        if late:
            raise TimeoutError(f"{late} did not end their steps")

    def _restore(self):
        saved = self.told.last_saved()
        self.told.restored(saved, self._marks_of)
        self.start(restore=saved and saved["path"])

    def _marks_of(self, path):
        return self.cluster.call("worker0", _MODULE + "marks_of", path=path)

    def finish(self):
        """What the marks say against the promise, one line each."""
        self.pause()
        self.told.check_saves(self._marks_of)
        self.told.check_end(self.cluster.call("worker0", _MODULE + "marks"))
        return self.told.violations


class _Strategy:
    """A coordinator of two workers: closures of lost workers are run again."""

    def __init__(self, run, cluster, testbed, directory, disk):
        del directory, disk
        self.run, self.cluster, self.testbed, self.pending = run, cluster, testbed, None

    def start(self):
        """Has as many steps scheduled as last longer than the faults, and returns when some have run."""
        self.pending = self.cluster.submit(
            "chief0", "tests.fuzz.in_chaos_strategy.count", options=self.run["options"][0], sizes=self.run["sizes"]
        )
        wait_until(
            lambda: self.pending.done() or self.cluster.call("chief0", "tests.fuzz.in_chaos_strategy.began"),
            _CALL_S,
            "the coordinator's first steps",
        )

    def fault(self, name, task, how):
        """One fault; the coordinator does something about it by itself."""
        if self.pending.done():
            self.pending.result(0)  # raises what has ended it
            raise AssertionError("the coordinator's program ended before it was asked to")
        if name == "stop":
            self.cluster.stop(task)
            time.sleep(how)
            self.cluster.resume(task)
        elif name == "cut":
            cut_network(self.testbed, [task], how)
        else:
            self.cluster.kill(task)
            self.cluster.restart(task)

    def finish(self):
        """Steps that were not applied once, of all that were joined."""
        self.cluster.call("chief0", "tests.fuzz.in_chaos_strategy.stop")
        result = self.pending.result(_CALL_S)
        return [
            f"step {number} of {result['steps']} was applied {count:g} times to variable {index}"
            for index, counts in enumerate(result["counts"])
            for number, count in enumerate(counts)
            if count != 1
        ]


def _server_was_unreachable(run, error):
    """Whether a coordinator's program ended as stock TensorFlow's does, too, when a parameter server has been cut off."""
    cut = any(name == "cut" for _, name, *_ in run["faults"])
    names_server = isinstance(error, TaskError) and error.kind == "UnavailableError" and "/job:ps" in error.message
    return run["kind"] == "strategy" and cut and names_server


def run_one(run, nursery, stock=False):
    """Violations; for a hang, stacks; and the error with which the program ended, if it is one that stock gives as well."""
    names = [*(f"ps{i}" for i in range(run["ps"])), "worker0", "worker1"]
    coordinator = run["kind"] == "strategy"
    environment = {name: {"TFSCHED_EMULATED_BPS": f"{run['bps']:.0f}"} for name in [*names, "chief0"]}
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="tfsched-chaos-"))
        disk = stack.enter_context(_small_disk(directory))
        testbed = stack.enter_context(Testbed([*names, "chief0"])) if run["namespaces"] else None
        arguments = {"ps": run["ps"], "workers": 2, "coordinator": coordinator, "testbed": testbed}
        if stock:
            run = {**run, "options": [None] * len(run["options"])}
            arguments["protocol"] = STOCK
        cluster = stack.enter_context(Cluster(nursery=nursery, environment=environment, **arguments))
        rig = (_Strategy if coordinator else _Session)(run, cluster, testbed, directory, disk)
        step = "start"
        try:
            rig.start()
            for number, (wait_s, name, task, how) in enumerate(run["faults"]):
                step = f"fault {number}: {name} of {task}"
                time.sleep(wait_s)
                rig.fault(name, task, how)
            step = "the end"
            lines = rig.finish()
            return lines, "", None
        except (TimeoutError, TaskDied, TaskError, AssertionError) as error:
            if _server_was_unreachable(run, error):
                return [], "", f"at {step}: {error}"
            stacks = "\n".join(
                f"--- {name}{native_stacks(cluster, name)}\n{cluster.log(name)[-3000:]}" for name in cluster.names
            )
            return [f"at {step}: {type(error).__name__}: {error}"], stacks, None


@contextlib.contextmanager
def _small_disk(directory):
    """A file system that no checkpoint fits on."""
    path = os.path.join(directory, "disk")
    os.mkdir(path)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", path], check=True, timeout=20)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True, timeout=20)


def available():
    """Whether this machine lets us mount and cut; the reason if not."""
    if os.geteuid() != 0:
        return False, "chaos needs root, to cut networks and fill disks"
    return netns_available()


def _drawn(first, n):
    """Runs with so many faults together."""
    if flags.FLAGS.kind == "mirrored":
        runs = (chaos_mirrored.draw(seed) for seed in itertools.count(first))
        return list(itertools.islice((run for run in runs if run["fault"] in flags.FLAGS.faults), n))
    most = chaos_programs.FAULTS
    runs = [chaos_programs.draw(first + number, min(most, n - number * most)) for number in range(-(-n // most))]
    return [run for run in runs if run["kind"] == "strategy" or not flags.FLAGS.stock]


def _arguments_of(run):
    """What ``make chaos`` repeats the run with."""
    if run["kind"] == "mirrored":
        return f'N=1 SEED={run["seed"]} ARGS="--kind=mirrored"'
    return f"N={len(run['faults'])} SEED={run['seed']}"


def _flags():
    flags.DEFINE_integer("n", 100, "How many faults.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "The first run's seed; the others have the next ones.")
    flags.DEFINE_integer("jobs", 2, "How many clusters run at once.", lower_bound=1)
    flags.DEFINE_enum("kind", "servers", ["servers", "mirrored"], "Parameter servers, or workers that all-reduce.")
    flags.DEFINE_list("faults", sorted(chaos_mirrored.FAULTS), "Which befall workers that all-reduce.")
    flags.DEFINE_bool("stock", False, "Break stock TensorFlow: which errors to expect. Of servers, only with a coordinator.")
    flags.DEFINE_bool("stacks", False, "Of a worker that all-reduces and hangs, print what each thread does: takes minutes.")


def main(argv):
    """Prints each finding and, at the end, one line; the exit code is 1 if there was one."""
    del argv
    begin_s, n, first = time.monotonic(), flags.FLAGS.n, flags.FLAGS.seed
    possible, reason = available()
    if not possible:
        sys.exit(reason)
    lock, found, ended = threading.Lock(), [], []
    tally, runs = chaos_mirrored.Tally(), _drawn(first, n)
    with Nurseries(task_environment()) as nursery, concurrent.futures.ThreadPoolExecutor(flags.FLAGS.jobs) as pool:
        reference = chaos_mirrored.Reference(nursery)

        def one(run):
            began_s = time.monotonic()
            if run["kind"] == "mirrored":
                with lock:  # made by whoever comes first
                    reference.losses(run["workers"])
                how = {"stock": flags.FLAGS.stock, "stacks": flags.FLAGS.stacks}
                lines, stacks, errors = chaos_mirrored.run_one(run, nursery, reference, **how)
                with lock:
                    tally.add(run, errors)
            else:
                lines, stacks, end = run_one(run, nursery, stock=flags.FLAGS.stock)
                if end:
                    with lock:
                        ended.append(run["seed"])
                        print(f"seed {run['seed']}: the program ended {end}", flush=True)
            with lock:
                took_s = time.monotonic() - began_s
                print(f"seed {run['seed']} ({run['kind']}): {'FINDING' if lines else 'ok'}, {took_s:.1f} s", flush=True)
                if lines:
                    found.append(run["seed"])
                    print("\n".join([json.dumps(run), *(f"  ! {line}" for line in lines[:20]), stacks]))
                    print(f"  repeat it: make chaos {_arguments_of(run)}", flush=True)

        list(pool.map(one, runs))
    found_text = f" (seeds {sorted(found)})" if found else ""
    took_s = time.monotonic() - begin_s
    last = runs[-1]["seed"]
    for line in tally.lines():
        print(line)
    if ended:
        print(f"{len(ended)} programs ended because a server could not be reached after a cut (seeds {sorted(ended)})")
    print(
        f"chaos: {n} faults in {len(runs)} runs, {len(found)} findings{found_text}, seeds {first} to {last}, {took_s:.0f} s"
    )
    return 1 if found else 0


if __name__ == "__main__":
    _flags()
    app.run(lambda argv: sys.exit(main(argv)))
