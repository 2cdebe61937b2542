"""Runs programs on clusters that live on from program to program, and says what was found."""

import contextlib
import dataclasses
import json
import shutil
import subprocess
import tempfile
import threading

from tests.cluster.cluster import STOCK, Cluster, TaskDied, TaskError, wait_until
from tests.fuzz import compare, model

STOCK_ONLY = "stock only"  # a key of programs that run without tfsched, which shows that the model asks for what stock gives
LIMIT_S = 120  # of a program; longer is a hang
_LEFT = (
    "background_outstanding",
    "mailboxes",
    "expectations",
    "queue_depth",
    "on_wire_bytes",
    "groups",
    "updates_in_chunks",
)
_STACKS = "tests.fuzz.in_session.stacks"


@dataclasses.dataclass
class Finding:
    """A program that did not keep the promise: what differed, a line each, and for a hang all stacks."""

    program: dict
    lines: list
    stacks: str = ""
    repeat: str = ""  # arguments of `make fuzz`; those of the seed, if there are none

    def text(self):
        """What is printed: the program, the difference, how to repeat it."""
        seed = self.program["seed"]
        actions = "\n".join(f"  {number:3} {json.dumps(one)}" for number, one in enumerate(self.program.get("actions", [])))
        rest = json.dumps({key: value for key, value in self.program.items() if key != "actions"})
        return "\n".join(
            [f"FINDING in seed {seed}", f"  {rest}", actions, *(f"  ! {line}" for line in self.lines)]
            + ([self.stacks] if self.stacks else [])
            + [f"  repeat it: make fuzz {self.repeat or f'N=1 SEED={seed}'}"]
        )


class Bench:
    """The clusters of one shape, made anew when a program has another or has broken them; a context manager."""

    def __init__(self, nursery, limit_s=LIMIT_S):
        self._nursery, self._limit_s = nursery, limit_s
        self._clusters, self._shape, self._serial = {}, None, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.drop()

    def drop(self):
        """Ends the clusters; the next program gets others."""
        for cluster in self._clusters.values():
            cluster.close()
        self._clusters.clear()

    def cluster(self, program, stock):
        """The program's cluster, or a stock one of the same size, whose links have no limit."""
        shape = {key: program[key] for key in ("ps", "workers", "bps", "stock")}
        shape |= {"chief": program["kind"] == "strategy", "mirrored": program["kind"] == "mirrored"}
        if shape != self._shape:
            self.drop()
            self._shape = shape
        if stock not in self._clusters:
            arguments = {"ps": shape["ps"], "workers": shape["workers"], "nursery": self._nursery}
            arguments |= {"coordinator": shape["chief"], "mirrored": shape["mirrored"]}
            if stock:
                arguments["protocol"] = STOCK
            else:
                names = [f"ps{i}" for i in range(shape["ps"])] + [f"worker{i}" for i in range(shape["workers"])] + ["chief0"]
                paced = {"TFSCHED_EMULATED_BPS": f"{shape['bps']:.0f}"}
                arguments["environment"] = {name: paced for name in names if name not in shape["stock"]}
                arguments["protocols"] = dict.fromkeys(shape["stock"], STOCK)
            self._clusters[stock] = Cluster(**arguments).__enter__()
        return self._clusters[stock]

    def run(self, program):
        """The finding, or None."""
        self._serial += 1
        prefix = f"p{program['seed']}x{self._serial}"  # a container's name, too
        with tempfile.TemporaryDirectory(prefix="tfsched-fuzz-") as directory:
            try:
                ways = {"session": self._compared, "strategy": self._coordinated, "mirrored": self._mirrored}
                return ways.get(program["kind"], self._counted)(program, prefix, directory)
            except (TimeoutError, TaskDied, TaskError, AssertionError) as error:
                stacks = self._ended() if isinstance(error, TaskError) else self._stacks()
                self.drop()
                return Finding(program, [f"{type(error).__name__}: {error}"], stacks)

    def _compared(self, program, prefix, directory):
        runs = [
            _Run(self.cluster(program, stock), program, prefix, directory, stock, self._limit_s) for stock in (True, False)
        ]
        for run in runs:
            run.start()
        wanted, got = (run.result() for run in runs)
        lines = compare.differences(program["actions"], wanted, got)
        self._nothing_left(program)
        for run in runs:
            run.clear()
        return Finding(program, lines) if lines else None

    def _counted(self, program, prefix, directory):
        """Asynchronous workers: what each saw must fit to what all did."""
        cluster, scenarios = self.cluster(program, stock=STOCK_ONLY in program), "tests.fuzz.in_counting."
        names = [f"worker{index}" for index in range(program["workers"])]
        synchronous = program["kind"] == "synchronous"
        arguments = {"program": program, "prefix": prefix}
        if not synchronous:  # there the chief's session does it, and the others wait for that
            cluster.call(names[0], scenarios + "prepare", **arguments)
        pending = []
        for name in names:
            pending.append(cluster.submit(name, scenarios + "run", directory=directory, **arguments))
            if synchronous and name == names[0]:  # others that came before it would wait for half a minute
                self._until(pending, lambda: cluster.call(names[0], scenarios + "opened"))
        if synchronous:
            self._until(pending, lambda: all(cluster.call(name, scenarios + "through") for name in names))
            for name in names:
                cluster.call(name, scenarios + "stop")
        logs = [one.result(self._limit_s) for one in pending]
        # The chief applies what the last synchronous steps have given behind their back; when its session ends it has.
        last = [] if synchronous else cluster.call(names[-1], scenarios + "final")
        for name in reversed(names):
            cluster.call(name, scenarios + "close", limit_s=self._limit_s)
        if STOCK_ONLY not in program:
            self._nothing_left(program)
        counter, counts = cluster.call(names[0], scenarios + "slots")
        cluster.call(names[0], scenarios + "clear")
        lines = model.violations(logs, program["workers"] if synchronous else 1)
        wanted = counter if synchronous else model.total(logs)
        for seen in (counts, *(entry["seen"] for entry in last)):
            lines += model.miscounts(seen, wanted)
        return Finding(program, lines) if lines else None

    def _until(self, pending, condition):
        """Waits for it, or for a worker that has failed."""
        wait_until(
            lambda: any(one.done() for one in pending) or condition(), self._limit_s, "workers that have come that far"
        )
        for one in pending:
            if one.done():
                one.result(1)

    def _coordinated(self, program, prefix, directory):
        """A coordinator's program; with several workers held against the model, else against stock TensorFlow."""
        stocks = (STOCK_ONLY in program,) if program["counts"] else (True, False)
        pending = [
            self.cluster(program, stock).submit(
                program["client"],
                "tests.fuzz.in_strategy.run",
                program=program,
                directory=f"{directory}/{stock}",
                stock=stock,
            )
            for stock in stocks
        ]
        results = [one.result(self._limit_s) for one in pending]
        lines = compare.differences(program["actions"], results[0]["seen"], results[-1]["seen"])
        if program["counts"]:
            lines += model.violations([results[0]["log"]])
        if STOCK_ONLY not in program:
            self._nothing_left(program)
        return Finding(program, lines) if lines else None

    def _mirrored(self, program, prefix, directory):
        """Workers that all-reduce: each has to see, bit for bit, what it sees with stock TensorFlow."""
        names = [f"worker{index}" for index in range(program["workers"])]
        seen = {(name, stock): [] for stock in (True, False) for name in names}
        begin, actions = 0, program["actions"]
        while begin <= len(actions):
            pending = {
                (name, stock): self.cluster(program, stock).submit(
                    name,
                    "tests.fuzz.in_mirrored.run",
                    program=program,
                    directory=f"{directory}/{stock}/{name}",
                    stock=stock,
                    begin=begin,
                )
                for name, stock in seen
            }
            for key, one in pending.items():
                part = one.result(self._limit_s)
                seen[key] += part["seen"]
            begin = part["at"] + 1
            if begin <= len(actions):
                for stock in (True, False):
                    self._lose(self.cluster(program, stock), names[actions[part["at"]][1]])
                for told in seen.values():
                    told.append(None)
        lines = [
            f"{name}: {line}"
            for name in names
            for line in compare.differences(program["actions"], seen[name, True], seen[name, False])
        ]
        self._nothing_left(program)
        return Finding(program, lines) if lines else None

    def _lose(self, cluster, lost):
        """Workers cannot go on without another one: whoever is left has to hear of it, and all are started again."""
        cluster.kill(lost)
        left = [name for name in cluster.names if name != lost]
        pending = [cluster.submit(name, "tests.fuzz.in_mirrored.step_without_the_lost") for name in left]
        for name, one in zip(left, pending, strict=True):
            assert one.result(self._limit_s) is not None, f"{name} made steps without {lost}"
        for name in left:
            cluster.kill(name)
        for name in cluster.names:
            cluster.restart(name)

    def _nothing_left(self, program):
        """When a program is over no task may hold anything of it."""
        cluster = self._clusters[False]
        names = [name for name in cluster.names if name not in program["stock"]]

        def left():
            seen[:] = [f"{name}: {key}" for name in names for key in _LEFT if cluster.stats(name).get(key)]
            return not seen

        seen = []
        try:
            wait_until(left, 20, "nothing left over")
        except AssertionError as error:
            raise AssertionError(f"{error}; last seen: {seen}") from None
        if program["kind"] != "mirrored":  # these do it themselves
            cluster.call(names[-1], "configure.change")

    def _ended(self):
        """The last lines of tasks whose processes have ended: an error that names a peer may come from that."""
        clusters = [("stock " if stock else "", cluster) for stock, cluster in self._clusters.items()]
        texts = [
            f"--- {which}{name} has ended\n" + "\n".join(cluster.log(name).splitlines()[-40:])
            for which, cluster in clusters
            for name in cluster.names
            if not cluster.alive(name)
        ]
        return "\n".join(texts)

    def _stacks(self):
        texts = []
        for stock, cluster in self._clusters.items():
            for name in cluster.names:
                said = f"--- {'stock ' if stock else ''}{name}\n"
                with contextlib.suppress(Exception):  # it may be gone
                    said += cluster.call(name, _STACKS, limit_s=10)
                texts.append(said + native_stacks(cluster, name))
        return "\n".join(texts)


def native_stacks(cluster, name):
    """Where every thread of a task is, as gdb tells, if there is one."""
    if not shutil.which("gdb") or not cluster.alive(name):
        return ""
    command = ["gdb", "-p", str(cluster.pid(name)), "-batch", "-ex", "thread apply all bt 24"]
    with contextlib.suppress(subprocess.TimeoutExpired):
        told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout
        return "\n" + "\n".join(line for line in told.splitlines() if line.startswith(("#", "Thread")))
    return ""


class _Run(threading.Thread):
    """One run of a program of one client, with the tasks that it loses."""

    def __init__(self, cluster, program, prefix, directory, stock, limit_s):
        super().__init__(daemon=True)
        self._cluster, self._program, self._prefix, self._stock = cluster, program, prefix, stock
        self._directory, self._limit_s = f"{directory}/{'stock' if stock else 'tfsched'}", limit_s
        self._seen, self._error = [], None

    def run(self):
        try:
            self._drive()
        except BaseException as error:  # told by result()
            self._error = error

    def _drive(self):
        begin, actions = 0, self._program["actions"]
        arguments = {"program": self._program, "prefix": self._prefix, "directory": self._directory, "stock": self._stock}
        while True:
            scenario = "tests.fuzz.in_session.run"
            part = self._cluster.call(self._program["client"], scenario, limit_s=self._limit_s, begin=begin, **arguments)
            self._seen += part["seen"]
            if part["at"] == len(actions):
                return
            lost = actions[part["at"]][1]
            self._cluster.kill(lost)
            self._cluster.restart(lost)
            self._seen.append(None)
            begin = part["at"] + 1

    def result(self):
        """What the actions saw."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._seen

    def clear(self):
        """Throws the variables away."""
        self._cluster.call(self._program["client"], "tests.fuzz.in_session.clear", prefix=self._prefix)
