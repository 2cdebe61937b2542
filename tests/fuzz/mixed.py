"""Trains with workers that differ, in every combination of two and of three: ``python -m tests.fuzz.mixed``.

Whatever the others are, training gives what stock TensorFlow gives, nobody waits for ever, and who wanted more than stock
says why it has not got it.
"""

import collections
import concurrent.futures
import contextlib
import itertools
import pathlib
import sys
import tempfile
import threading
import time

from absl import app, flags

from tests.cluster import other_build
from tests.cluster.cluster import STOCK, TFSCHED, Cluster, TaskDied, TaskError, task_environment
from tests.cluster.nurseries import Nurseries
from tests.fuzz.running import native_stacks

# What a worker may be; the options with which it calls tfsched.enable, None if it does not.
KINDS = {
    "kept": {},
    "crossed": {"barrier": False},
    "pieces": {"partition_bytes": 65536},
    "without enable": None,
    "stock": None,
    "other build": {},
}
STEPS = 4
LIMIT_S = 120  # of one training; longer is a hang
_LIBRARY = "TFSCHED_LIBRARY"
_SAID = "run as in stock TensorFlow: "
_COUNTERS = ("packs_scheduled", "packs_stock", "background_calls", "background_outstanding", "all_reduces_failed")


def _process(kind):
    """Workers of these three are different programs; all else is a matter of options."""
    return kind if kind in ("stock", "other build") else "this build"


def processes_of(kinds):
    """Which programs these workers are."""
    return tuple(map(_process, kinds))


def combinations(members):
    """All of so many workers; those that run on the same processes, one after another, are a list."""
    batches = collections.defaultdict(list)
    for kinds in itertools.product(KINDS, repeat=members):
        batches[processes_of(kinds)].append(kinds)
    for batch in batches.values():  # before it is enabled for the first time, a process is another one than later
        batch.sort(key=lambda kinds: -kinds.count("without enable"))
    return list(batches.values())


def are_alike(kinds):
    """Whether the workers exchange their gradients one by one."""
    return set(kinds) <= {"kept", "crossed"} or (len(set(kinds)) == 1 and KINDS[kinds[0]] is not None)


class Builds:
    """Nurseries of this build and of another one; a context manager with the interface of one Nurseries."""

    def __init__(self):
        self._stack, self._directory = contextlib.ExitStack(), None
        self._making = threading.Lock()

    def __enter__(self):
        self._directory = pathlib.Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="tfsched-mixed-")))
        self._this = self._stack.enter_context(Nurseries(task_environment()))
        self._other = None
        return self

    def __exit__(self, *_):
        self._stack.close()

    def library(self):
        """The other build's."""
        with self._making:
            if self._other is None:
                path = other_build.build(self._directory, "weight: int = 1")
                self._other = self._stack.enter_context(Nurseries({**task_environment(), _LIBRARY: path}))
                self._path = path
        return self._path

    def fork(self, spec, environment, log, namespace=None):
        """As Nurseries.fork, with the library that the environment names."""
        other = self._other is not None and environment.get(_LIBRARY) == self._path
        return (self._other if other else self._this).fork(spec, environment, log, namespace)


def _everywhere(cluster, arguments):
    pending = [
        cluster.submit(name, "tests.fuzz.in_mixed.train", **one) for name, one in zip(cluster.names, arguments, strict=True)
    ]
    return [one.result(LIMIT_S) for one in pending]


def stock_results(builds, members):
    """What so many stock workers compute."""
    with Cluster(ps=0, workers=members, nursery=builds, mirrored=True, protocol=STOCK) as cluster:
        return _everywhere(cluster, [{"options": None, "steps": STEPS}] * members)


class Mixture:
    """Workers of the given programs; a context manager. Trains every combination of kinds that they can be."""

    def __init__(self, builds, processes, wanted):
        self._wanted, self._processes = wanted, processes
        names = [f"worker{number}" for number in range(len(processes))]
        protocols = {name: STOCK if one == "stock" else TFSCHED for name, one in zip(names, processes, strict=True)}
        others = {name for name, one in zip(names, processes, strict=True) if one == "other build"}
        environment = {name: {_LIBRARY: builds.library()} for name in others}
        self.cluster = Cluster(
            ps=0, workers=len(names), nursery=builds, mirrored=True, protocols=protocols, environment=environment
        )

    def __enter__(self):
        self.cluster.__enter__()
        return self

    def __exit__(self, *_):
        self.cluster.close()

    def _counts(self, name, kind):
        stats = self.cluster.stats(name) if kind != "stock" else {}
        return collections.Counter({key: stats.get(key, 0) for key in _COUNTERS})

    def train(self, kinds):
        """What was not as promised, one line each."""
        names = self.cluster.names
        before = {name: self._counts(name, kind) for name, kind in zip(names, kinds, strict=True)}
        got = _everywhere(self.cluster, [{"options": KINDS[kind], "steps": STEPS} for kind in kinds])
        found = []
        if len({tuple(one["variables"]) for one in got}) > 1:
            found.append("the workers' variables differ")
        # The order of three workers' sums is tfsched's own where they exchange.
        if (len(kinds) == 2 or not are_alike(kinds)) and got != self._wanted:
            found.append("values differ from stock TensorFlow's")
        for index, (name, kind) in enumerate(zip(names, kinds, strict=True)):
            made = self._counts(name, kind)
            made.subtract(before[name])
            found += [f"{name}: {line}" for line in self._not_as_promised(index, kinds, made)]
        return found

    def _not_as_promised(self, index, kinds, made):
        options = KINDS[kinds[index]]
        wanted = dict.fromkeys(_COUNTERS, 0)
        if options is not None:
            wanted["packs_scheduled" if are_alike(kinds) else "packs_stock"] = STEPS
            wanted["background_calls"] = STEPS * (kinds[index] == "crossed")
        for key, count in wanted.items():
            if made[key] != count:
                yield f"{made[key]} {key} in place of {count}"
        said = [line.partition(_SAID)[2] for line in self.cluster.log(f"worker{index}").splitlines() if _SAID in line]
        if len(said) != len(set(said)):
            yield f"said twice: {said}"
        if options is not None and not are_alike(kinds) and not any(_explains(line, index, kinds) for line in said):
            yield f"did not say why it ran stock TensorFlow's all-reduces; it said {said}"


def _explains(line, me, kinds):
    """Whether the line that ``me`` has said names a worker that differs, and in what."""
    for index, kind in enumerate(kinds):
        task = f"task:{index}"
        if _process(kind) != _process(kinds[me]):
            if f"{task} does not run this build of tfsched" in line:
                return True
        elif kind == "without enable" and f"{task} runs it without tfsched" in line:
            return True
    return "pieces" in kinds and "partition_bytes" in line and "65536" in line


def run_batch(builds, batch, wanted, report):
    """Trains combinations of one shape on the same processes, and calls ``report(kinds, lines, stacks)`` for each."""
    waiting = list(batch)
    while waiting:
        with Mixture(builds, processes_of(batch[0]), wanted) as mixture:
            while waiting:
                kinds = waiting.pop(0)
                try:
                    report(kinds, mixture.train(kinds), "")
                except (TimeoutError, TaskDied, TaskError, AssertionError) as error:
                    stacks = "\n".join(native_stacks(mixture.cluster, name) for name in mixture.cluster.names)
                    report(kinds, [f"{type(error).__name__}: {error}"], stacks)
                    break  # what is left needs other processes


def main(argv):
    """Prints each finding and, at the end, one line; the exit code is 1 if there was one."""
    del argv
    begin_s, lock, counts = time.monotonic(), threading.Lock(), collections.Counter()

    def report(kinds, lines, stacks):
        with lock:
            counts["trained"] += 1
            counts["findings"] += bool(lines)
            print(f"{', '.join(kinds)}: {'FINDING' if lines else 'ok'}", flush=True)
            if lines:
                print("\n".join([*(f"  ! {line}" for line in lines), stacks]), flush=True)

    with Builds() as builds, concurrent.futures.ThreadPoolExecutor(flags.FLAGS.jobs) as pool:
        pending = []
        for members in map(int, flags.FLAGS.workers):
            wanted = stock_results(builds, members)
            pending += [pool.submit(run_batch, builds, batch, wanted, report) for batch in combinations(members)]
        for one in pending:
            one.result()
    took_s = time.monotonic() - begin_s
    print(f"mixed: {counts['trained']} combinations, {counts['findings']} findings, {took_s:.0f} s")
    return 1 if counts["findings"] else 0


if __name__ == "__main__":
    flags.DEFINE_list("workers", ["2", "3"], "How many workers train together.")
    flags.DEFINE_integer("jobs", 2, "How many clusters run at once.", lower_bound=1)
    app.run(lambda argv: sys.exit(main(argv)))
