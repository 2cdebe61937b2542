"""Breaks workers that all-reduce: every survivor gets stock TensorFlow's error with the reason, and no sum is wrong."""

import collections
import concurrent.futures
import contextlib
import os
import tempfile
import time

from tests.cluster.cluster import STOCK, TFSCHED, Cluster, TaskDied, TaskError, cut_network, wait_until
from tests.fuzz import drawing
from tests.fuzz.chaos_programs import BROKEN_INPUT
from tests.fuzz.running import native_stacks
from tfsched.bench.testbed import Testbed

_MODULE = "tests.fuzz.in_chaos_mirrored."
_CALL_S = 120
_BEFORE, _AFTER = 3, 4  # steps before a fault, and after one that ends nothing
_WANTED_STEPS = 250  # of training that nothing befalls
_BPS = 32e6  # a step's gradients take a tenth of a second, so that most faults come while they are under way
# How long a worker may be without an error. One that nobody hears of any more is taken for lost by TensorFlow's coordination
# service, which by itself waits for longer.
_HANG_S = 60
_ABORTED = "the program gives up"

# Fault -> the classes of errors that stock TensorFlow raises, of which survivors have to have one. A worker whose input is
# broken, or whose step is cancelled, has an error of its own, of the class that `OWN` says, and its program ends with that.
_LOST = {"UnavailableError", "AbortedError", "InternalError", "FailedPreconditionError", "CancelledError"}
OWN = {"broken input": "InvalidArgumentError", "cancel": "CancelledError"}
FAULTS = {
    "kill": _LOST,
    "cut": _LOST | {"DeadlineExceededError"},
    "stop": set(),  # for two seconds: it goes on
    "restart": _LOST,
    "broken input": _LOST,
    "cancel": _LOST,
    "abort": {"UnavailableError"},
    "health check": {"UnavailableError"},
}


def draw(seed):
    """The run of a seed: one fault, for most end the group.

    Eight seeds in a row have each fault once, the next eight across the barrier, and the sixteen after them three workers.
    """
    rng = drawing.generator(seed, "mirrored chaos")
    kinds = list(FAULTS)
    way = seed // len(kinds)
    workers = 2 + way // 2 % 2
    options = {"barrier": way % 2 == 0, "partition_bytes": rng.choice((0, 20_000, 65_536))}
    fault = kinds[seed % len(kinds)]
    return {
        "seed": seed,
        "kind": "mirrored",
        "workers": workers,
        "options": options,
        "fault": fault,
        "task": f"worker{rng.randrange(workers)}",
        "wait_s": round(rng.uniform(0.0, 0.5), 3),
        "how": rng.choice(("exchange", "start")),
        "namespaces": fault == "cut",
    }


class Reference:
    """What each worker's losses are when nothing befalls it, of either number of workers."""

    def __init__(self, nursery):
        self._nursery, self._losses = nursery, {}

    def losses(self, workers):
        """Worker's name -> step -> loss."""
        if workers not in self._losses:
            # Three workers' sums are in an order of tfsched's own.
            protocol, options = (STOCK, None) if workers == 2 else (TFSCHED, {})
            with Cluster(ps=0, workers=workers, nursery=self._nursery, mirrored=True, protocol=protocol) as cluster:
                _everywhere(cluster, cluster.names, "begin", options=options, last=_WANTED_STEPS)
                _until_over(cluster, cluster.names)
                self._losses[workers] = dict(zip(cluster.names, _everywhere(cluster, cluster.names, "told"), strict=True))
        return self._losses[workers]


def _everywhere(cluster, names, scenario, own=None, **arguments):
    pending = [cluster.submit(name, _MODULE + scenario, **arguments, **(own or {}).get(name, {})) for name in names]
    return [one.result(_CALL_S) for one in pending]


def _progress(cluster, name):
    return cluster.call(name, _MODULE + "progress")


def _until_over(cluster, names, limit_s=_CALL_S):
    for name in names:
        said = wait_until(lambda name=name: _over(_progress(cluster, name)), limit_s, f"the end of {name}'s loop")
        assert said["error"] is None, f"{name}: {said['error']}"


def _over(progress):
    return progress if progress["over"] else None


class Run:
    """One run on its own workers."""

    def __init__(self, run, cluster, testbed, directory, stock, reference):
        self.run, self.cluster, self.testbed, self.directory, self.stock = run, cluster, testbed, directory, stock
        self.reference = reference
        self.errors = []  # (worker, class, message, seconds from the fault on)
        self.found = []

    def start(self):
        """Has all workers train, for some steps at least."""
        self._begin()
        for name in self.cluster.names:
            self._until_steps(name, _BEFORE)
        time.sleep(self.run["wait_s"])

    def _begin(self, **more):
        own = {}
        if self.run["fault"] == "restart":
            own = {name: {"directory": os.path.join(self.directory, name)} for name in self.cluster.names}
        arguments = {"options": None if self.stock else self.run["options"], "health": self.run["fault"] == "health check"}
        _everywhere(self.cluster, self.cluster.names, "begin", own, **arguments, **more)

    def _until_steps(self, name, steps):
        def reached():
            said = _progress(self.cluster, name)
            assert said["error"] is None, f"{name} has failed: {said['error']}"
            return said["steps"] >= steps

        wait_until(reached, _CALL_S, f"{steps} steps of {name}")

    def break_it(self):
        """The fault, and what has to come of it."""
        cluster, fault, task = self.cluster, self.run["fault"], self.run["task"]
        others = [name for name in cluster.names if name != task]
        begin_s = time.monotonic()
        if fault == "stop":
            cluster.stop(task)
            time.sleep(2)
            cluster.resume(task)
            return self._goes_on()
        if fault in ("kill", "restart"):
            cluster.kill(task)
            survivors = others
        elif fault == "cut":
            cut_network(self.testbed, [task], 0, up=False)
            survivors = cluster.names
        elif fault == "health check":
            cluster.stop(task)
            survivors = others
        elif fault == "abort":
            cluster.call(task, _MODULE + "abort", reason=_ABORTED)
            survivors = cluster.names
        else:
            cluster.call(task, _MODULE + "put", what="broken" if fault == "broken input" else self.run["how"])
            self._own_error(task)
            cluster.kill(task)
            survivors = others
        if fault == "restart":  # at once: the others may not have heard of it
            cluster.restart(task)
            cluster.submit(task, _MODULE + "begin", options=None if self.stock else self.run["options"])
        self._hear(survivors, begin_s)
        if fault == "restart":
            self._train_on(others)
        return None

    def _own_error(self, name):
        """What the worker itself is told, whose program ends with that."""
        fault, (error, _) = self.run["fault"], self._error_of(name)
        reason = {"broken input": BROKEN_INPUT, "cancel": "ancel"}[fault]
        if error["kind"] != OWN[fault] or reason not in error["message"]:
            self.found.append(f"{name}: {error['kind']} in place of {OWN[fault]} with {reason!r}: {error['message'][:500]}")
        self._compare([name])

    def _hear(self, survivors, begin_s):
        with concurrent.futures.ThreadPoolExecutor(len(survivors)) as pool:
            waiting = {name: pool.submit(self._error_of, name) for name in survivors}
            for name, one in waiting.items():
                error, at_s = one.result()
                self.errors.append((name, error["kind"], error["message"], at_s - begin_s))
        for name, kind, message, _ in self.errors:
            if not self.stock:
                self._judge(name, kind, message)
        for name in survivors:
            if not self.stock and _everywhere(self.cluster, [name], "step_again") == [None]:
                self.found.append(f"{name}: a step behind the error had none")
        self._compare(survivors)

    def _error_of(self, name):
        limit = f"an error in {name}"
        error = wait_until(lambda: _progress(self.cluster, name)["error"], _HANG_S, limit)
        return error, time.monotonic()

    def _judge(self, name, kind, message):
        fault, task = self.run["fault"], f"task:{self.run['task'][-1]}"
        if kind not in FAULTS[fault]:
            self.found.append(f"{name}: {kind} in place of one of {sorted(FAULTS[fault])}: {message[:500]}")
        # Who is cut off may be told of the coordination service only.
        reasons = {"abort": [_ABORTED], "cut": ["task:", "CoordinationService"]}.get(fault, [task])
        if not any(reason in message for reason in reasons):
            self.found.append(f"{name}: none of {reasons} is in its error: {message[:500]}")

    def _compare(self, names):
        """Whatever step has returned has to have been made of right sums."""
        wanted = self.reference.losses(self.run["workers"])
        for name, told in zip(names, _everywhere(self.cluster, names, "told"), strict=True):
            wrong = [number for number, loss in told.items() if wanted[name][number] != loss]
            if wrong and not (self.stock and self.run["workers"] > 2):
                self.found.append(f"{name}: steps {wrong} have other losses than training without a fault")

    def _goes_on(self):
        names = self.cluster.names
        last = max(_progress(self.cluster, name)["steps"] for name in names) + _AFTER
        _everywhere(self.cluster, names, "end_at", number=last)
        _until_over(self.cluster, names)
        self._compare(names)
        self._end_alike()

    def _end_alike(self):
        ends = _everywhere(self.cluster, self.cluster.names, "variables")
        if len(set(ends)) > 1:
            self.found.append(f"the workers' variables differ at the end: {ends}")

    def _train_on(self, survivors):
        """The whole program is started again, from the last checkpoint that all workers have."""
        for name in self.cluster.names:
            self.cluster.kill(name)
        saved = []
        for name in self.cluster.names:
            with open(os.path.join(self.directory, name, "last"), encoding="ascii") as file:
                saved.append(int(file.read()))
        first = min(saved)
        for name in self.cluster.names:
            self.cluster.restart(name)
        self._begin(first=first, last=first + _AFTER, restore=True)
        _until_over(self.cluster, self.cluster.names)
        self._compare(self.cluster.names)
        self._end_alike()


def run_one(run, nursery, reference, stock=False, stacks=False):
    """(what was not as promised, a line each; logs and, if ``stacks``, stacks; the survivors' errors)."""
    names = [f"worker{number}" for number in range(run["workers"])]
    environment = {} if stock else {name: {"TFSCHED_EMULATED_BPS": f"{_BPS:.0f}"} for name in names}
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="tfsched-chaos-"))
        testbed = stack.enter_context(Testbed(names)) if run["namespaces"] else None
        cluster = stack.enter_context(
            Cluster(
                ps=0,
                workers=run["workers"],
                nursery=nursery,
                mirrored=True,
                protocol=STOCK if stock else TFSCHED,
                environment=environment,
                testbed=testbed,
            )
        )
        rig, doing = Run(run, cluster, testbed, directory, stock, reference), "start"
        try:
            rig.start()
            doing = f"{run['fault']} of {run['task']}"
            rig.break_it()
            return rig.found, "", rig.errors
        except (TimeoutError, TaskDied, TaskError, AssertionError) as error:
            told = "\n".join(
                f"--- {name}{native_stacks(cluster, name) if stacks else ''}\n{cluster.log(name)[-3000:]}"
                for name in cluster.names
            )
            return [*rig.found, f"at {doing}: {type(error).__name__}: {error}"], told, rig.errors


class Tally:
    """What survivors were told, by fault."""

    def __init__(self):
        self._by_fault = collections.defaultdict(list)

    def add(self, run, errors):
        """The errors of one run."""
        self._by_fault[run["fault"]].append(errors)

    def lines(self):
        """One for each fault: how often, which classes, and how long it took."""
        for fault, runs in self._by_fault.items():
            errors = [error for one in runs for error in one]
            if not errors:
                yield f"  {fault}: {len(runs)} times, went on"
                continue
            classes = collections.Counter(kind for _, kind, _, _ in errors)
            seconds = sorted(took_s for *_, took_s in errors)
            counted = ", ".join(f"{kind} {count}" for kind, count in classes.most_common())
            yield (
                f"  {fault}: {len(runs)} times, {counted}; "
                f"heard after {seconds[len(seconds) // 2]:.1f} s (median), {seconds[-1]:.1f} s (last)"
            )
