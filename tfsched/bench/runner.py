"""Measures settings and bounds step by step in turns, so that all meet the same conditions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfsched.bench.batch import BatchFit, find_batch
from tfsched.bench.cluster import Cluster
from tfsched.bench.errors import BenchError
from tfsched.bench.settings import STOCK, Setting
from tfsched.bench.steady import step_time_s
from tfsched.bench.turns import turns

COMPUTE, PULL, PUSH = "compute alone", "communication alone: pull", "communication alone: push"
BESIDE = "compute beside communication"
BOTH = "communication alone: both ways"
# The same bytes in the pieces of a setting that has one under way at a time: each begins when the one before it is away.
PIECES = "communication alone: piece after piece"
ALL_REDUCE = "communication alone: all-reduce"
# All gradients, by tfsched: what PIECES is compared with where workers all-reduce.
EXCHANGE = "communication alone: tfsched's all-reduce"
# What keeps the links busy for BESIDE: training's transfers and updates, without its arithmetic.
_EXCHANGE = "exchange beside computing"
# As many bytes over plain TCP, where that crosses the limited links.
TCP = "communication alone: TCP"
# Joining all gradients to one tensor, and splitting it: what groups that are all-reduced cost a worker.
JOIN = "joining and splitting"
TRACED_STEPS = 5
_PROBES = 3
_LONG_RUN_S = 1.0

Progress = Callable[[str, int, int], None]
"""Told (what, steps done, steps in all)."""


@dataclasses.dataclass
class Measurement:
    """What was measured, in seconds, one entry a round.

    Attributes:
        steps_s: time of a step, by setting: of a long block the steady state's, of a short one as in whole_s (steady.py).
        finishes_s: time from each single step's start until each worker finished, by setting.
        bounds_s: the same rounds' times for COMPUTE, PULL, in phase train PUSH and, if asked for, BESIDE, BOTH and, with a
            setting of policy p3 across the barrier, PIECES; where workers all-reduce for COMPUTE, ALL_REDUCE, over limited
            links TCP and, if asked for, BESIDE, JOIN and, with such a setting, EXCHANGE and PIECES.
        stolen_s: processor time that the machine's host gave to others in a step, all cores together, by setting: such a
            share of the step's time as it took of the whole block's.
        networking_busy: for which share of a block the cores that do the networking were busy, by setting; nothing if
            workers compute on them too.
        whole_s: time of a step with the block's ends, by setting and bound: wall time of a block until its last update is
            applied, by the block's steps.
        block: consecutive steps in a block.
    """

    steps_s: dict[str, list[float]]
    finishes_s: dict[str, list[list[float]]]
    bounds_s: dict[str, list[float]]
    stolen_s: dict[str, list[float]]
    whole_s: dict[str, list[float]]
    block: int = 1
    networking_busy: dict[str, list[float]] = dataclasses.field(default_factory=dict)


def exchange_setting(settings: Sequence[Setting]) -> Setting:
    """What keeps the links busy for BESIDE: a setting across the barrier if there is one, or one with tfsched, or stock."""
    chosen = max(settings, key=lambda one: (one.crosses_barrier, one.options is not None))
    if not chosen.needs_plan:
        return chosen
    # Its plan is of the step's transfers, which the exchange does not have.
    return dataclasses.replace(chosen, options={**(chosen.options or {}), "ordering": "tio"}, needs_plan=False)


class Runner:
    """Prepares and measures one model on a running cluster."""

    def __init__(
        self,
        cluster: Cluster,
        model: str,
        phase: str,
        settings: list[Setting],
        seed: int,
        warmup: int,
        progress: Progress,
        beside: bool = False,
        balanced: bool = False,
    ) -> None:
        self._cluster = cluster
        self._model: dict[str, Any] = {"model": model, "phase": phase, "seed": seed, "balanced": balanced}
        self._settings = settings
        self._warmup = warmup
        self._progress = progress
        # The bounds need no tfsched, but on an emulated link only its servers limit transfers.
        protocols = cluster.protocols
        self._bounds_protocol = STOCK if STOCK in protocols else protocols[0]
        self.ps_bytes: dict[str, int] = {}  # of the variables on each parameter server, once the batch is chosen
        self.unscheduled: set[str] = set()  # settings with a block none of whose transfers was ordered
        self._variables: dict[str, Any] = {}  # where coordinators have put them, for what moves as many bytes
        self._places: dict[str, str] = {}  # session -> the process that runs it, if not worker 0
        self.plans: dict[str, str] = {}  # setting that needs one -> the plan that it runs, as text
        self._opened: set[str] = set()  # settings whose sessions are open
        self._one_at_a_time = False
        self._bounds = [COMPUTE, PULL] + ([PUSH] if phase == "train" else [])
        self._links = self._bounds[1:]
        if beside:
            self._bounds += [BESIDE, BOTH] if phase == "train" else [BESIDE]
        self._in_pieces = next(
            (one for one in settings if one.crosses_barrier and (one.options or {}).get("policy") == "p3"), None
        )
        if BOTH in self._bounds and self._in_pieces is not None:
            self._bounds.append(PIECES)

    def choose_batch(self, batch: int | None) -> BatchFit | None:
        """Builds everything for `batch`; with None, first finds the batch that balances times."""
        fit = None
        if batch is None:
            fit = self._find_batch()
            batch = fit.batch
        else:
            self._build("step", batch)
            self._build("communication", None)
            self._open_communication()
        sizes = self._build("step", batch)["bytes_by_device"]
        self.ps_bytes = {device: size for device, size in sizes.items() if device.startswith("/job:ps/")}
        self._build("compute", batch)
        self._open(COMPUTE, "compute")
        return fit

    def _build(self, graph: str, batch: int | None) -> dict[str, Any]:
        request = {"do": "build", "graph": graph, "batch": batch, **self._model}
        if graph != "step" or not self._cluster.coordinators:
            return self._cluster.call(**request, **(self._variables if graph in ("communication", "exchange") else {}))
        answers = [self._cluster.call(to=place, **request) for place in self._cluster.coordinators.values()]
        self._variables = {"variables": answers[0]["variables"]}
        return answers[0]

    def _open(self, session: str, graph: str, plain: bool = False) -> None:
        self._cluster.call(do="open", session=session, graph=graph, protocol=self._bounds_protocol, plain=plain)

    def _open_communication(self) -> None:
        for session in self._links:
            self._open(session, "communication", plain=True)

    def _find_batch(self) -> BatchFit:
        self._progress("choosing the batch", 0, 8)
        self._build("step", 1)
        self._build("communication", None)
        self._open_communication()
        target_s = self._target_s()
        self._build("compute", None)
        self._open(COMPUTE, "compute")
        done = 1

        def measure(batch: int) -> float:
            nonlocal done
            self._progress(f"choosing the batch: {batch}?", done, 8)
            done += 1
            return self._probe(COMPUTE, batch)

        fit = find_batch(measure, target_s)
        self._progress("choosing the batch", 8, 8)
        return fit

    def _target_s(self) -> float:
        """Seconds of communicating alone, which computing shall take nearly as long as."""
        return max(self._probe(session) for session in self._links)

    def _probe(self, session: str, batch: int | None = None) -> float:
        """Seconds of one run: the median of a few after two that warm up; of long runs one each."""
        request: dict[str, Any] = {"do": "run", "fetch": _fetch(session), "batch": batch}
        steps_s: list[float] = self._call(session, count=2, **request)["steps_s"][1:]
        # What varies between runs is a matter of milliseconds: a long run needs no second opinion.
        if steps_s[0] < _LONG_RUN_S:
            steps_s = self._call(session, count=_PROBES, **request)["steps_s"]
        return float(np.median(steps_s))

    def open_settings(self, one_at_a_time: bool = False) -> None:
        """Opens and warms up a session for each setting; makes plans for those that need one.

        Args:
            one_at_a_time: for a single round. A setting's session is opened when its turn comes and closed behind it. Many
                sessions of a large model take memory that nobody needs, and new memory can be slow on a virtual machine.
        """
        self._one_at_a_time = one_at_a_time
        settings = [] if one_at_a_time else self._settings
        total = len(settings) + 1
        for number, setting in enumerate(settings):
            self._progress(f"warming up {setting.name}", number, total)
            self._prepare(setting, self._warmup - 1)
        self._progress("warming up the bounds", total - 1, total)
        if BESIDE in self._bounds and PUSH in self._links:
            self._open_exchange()
        for session in self._bounds:
            self._run(session, self._warmup - 1)
        # The last one in turns, as the measured steps will be: what one session leaves behind is cold for the next.
        for session in [setting.name for setting in settings] + self._bounds if self._warmup else []:
            self._run(session, 1)
        self._progress("warming up", total, total)

    def _open_exchange(self) -> None:
        chosen = exchange_setting(self._settings)
        self._build("exchange", None)
        self._call(_EXCHANGE, do="open", graph="exchange", protocol=chosen.protocol, options=chosen.options)
        if PIECES in self._bounds and self._in_pieces is not None:
            chosen = self._in_pieces
            self._call(PIECES, do="open", graph="exchange", protocol=chosen.protocol, options=chosen.options)

    def _turns(self) -> list[str]:
        return [setting.name for setting in self._settings] + self._bounds

    def _prepare(self, setting: Setting, warmup: int) -> None:
        """Opens a setting's session, with a plan where it needs one, and warms it up."""
        options = dict(setting.options or {})
        if setting.needs_plan:
            if setting.name not in self.plans:
                self.plans[setting.name] = self._plan(setting)
            options["plan"] = self.plans[setting.name]
        self._open_setting(setting.name, setting, options)
        self._opened.add(setting.name)
        # At least one: the pass reads the plan when the graph first runs.
        self._run(setting.name, max(warmup, 1 if setting.needs_plan else 0))

    def _ensure_open(self, session: str) -> None:
        """Opens and warms up a setting's session, unless it is open."""
        for setting in self._settings:
            if setting.name == session and session not in self._opened:
                self._prepare(setting, self._warmup)

    def _close_behind(self, session: str) -> None:
        """One at a time: closes a session whose only turn is over."""
        if not self._one_at_a_time:
            return
        if session in self._opened:
            self._opened.remove(session)
            self._call(session, do="close")
        elif session == BESIDE and PUSH in self._links:
            self._call(_EXCHANGE, do="close")
        elif session == PIECES:
            self._call(PIECES, do="close")

    def _open_setting(self, session: str, setting: Setting, options: dict[str, object]) -> None:
        if self._cluster.coordinators:
            self._places[session] = self._cluster.coordinators[setting.protocol]
        self._call(
            session,
            do="open",
            graph="step",
            protocol=setting.protocol,
            options=None if setting.options is None else options,
        )

    def _run(self, session: str, count: int) -> dict[str, Any]:
        """The chief's answer to `count` consecutive steps of a session; nothing for less than one."""
        if count < 1:
            return {}
        if session == BESIDE:
            beside = [[_EXCHANGE, "step"]] if PUSH in self._links else [[PULL, _fetch(PULL)]]
            return self._call(COMPUTE, do="run", fetch=_fetch(COMPUTE), count=count, beside=beside)
        if session == BOTH:
            return self._call(PULL, do="run", fetch="both", count=count)
        answer = self._call(session, do="run", fetch=_fetch(session), count=count)
        # A worker tells its finish by its own machine's clock.
        return answer if self._cluster.one_clock else {**answer, "finishes_s": []}

    def _call(self, session: str, **request: Any) -> dict[str, Any]:
        return self._cluster.call(to=self._places.get(session, "worker0"), session=session, **request)

    def _plan(self, setting: Setting) -> str:
        """A plan, as text, made from steps traced under an ordering that needs no times."""
        assert setting.options is not None
        session = f"{setting.name} (traced)"
        # With the barrier kept, if it is not: a traced step must hold its own updates.
        kept = {"barrier": True} if setting.crosses_barrier else {}
        self._open_setting(session, setting, {**setting.options, "ordering": "tio", **kept})
        self._run(session, self._warmup)
        answer = self._call(
            session,
            do="plan",
            algorithm=setting.options["ordering"],
            steps=TRACED_STEPS,
        )
        self._call(session, do="close")
        return str(answer["plan"])

    def measure(self, rounds: int, block: int = 1) -> Measurement:
        """Runs rounds in which every setting and bound takes one block of `block` steps, in balanced order."""
        names = [setting.name for setting in self._settings]
        sessions = self._turns()
        result = Measurement(
            {name: [] for name in names},
            {name: [] for name in names},
            {name: [] for name in self._bounds},
            {name: [] for name in names},
            {name: [] for name in sessions},
            block,
        )
        total = rounds * len(sessions)
        for number in range(rounds):
            for place, turn in enumerate(turns(len(sessions), number)):
                session = sessions[turn]
                self._progress(f"measuring {session}", number * len(sessions) + place, total)
                self._ensure_open(session)
                before_s = self._cluster.stolen_s()
                busy_s = self._cluster.networking_busy_s()
                answer = self._run(session, block)
                stolen_s = self._cluster.stolen_s() - before_s
                now_busy_s = self._cluster.networking_busy_s()
                self._close_behind(session)
                # A coordinator's workers share the steps of a block, a session's take part in each of them.
                each = self._cluster.workers if session in self._places else 1
                step_s = step_time_s(answer["ends_s"], answer["block_s"], block, each)
                result.whole_s[session].append(answer["block_s"] / block)
                if session in result.bounds_s:
                    result.bounds_s[session].append(step_s)
                    continue
                if answer.get("unscheduled"):
                    self.unscheduled.add(session)
                result.steps_s[session].append(step_s)
                result.stolen_s[session].append(stolen_s * step_s / answer["block_s"])
                result.finishes_s[session].extend(answer["finishes_s"])
                if busy_s is not None:
                    share = ((now_busy_s or 0.0) - busy_s) / answer["block_s"]
                    result.networking_busy.setdefault(session, []).append(min(share, 1.0))
        self._progress("measuring", total, total)
        return result

    def trace(self, batch: int, steps: int, path: str) -> None:
        """Traces steps of the only setting and saves the trace; nothing else is built."""
        (setting,) = self._settings
        self._progress(f"warming up {setting.name}", 0, 2)
        self._build("step", batch)
        self._prepare(setting, self._warmup)
        self.trace_open(setting.name, steps, path)

    def trace_open(self, session: str, steps: int, path: str) -> None:
        """Traces steps of a setting that is open and warm, and saves the trace."""
        self._ensure_open(session)
        self._progress(f"tracing {session}", 1, 2)
        self._call(session, do="trace", steps=steps, path=path)

    def trace_kept(self, path: str) -> bool:
        """Traces steps that keep the barrier, of stock TensorFlow if that is a setting, and saves the trace.

        A traced step must hold its own updates, and stock TensorFlow's shows in which orders it asks for variables.

        Returns:
            Whether there was a setting to trace.
        """
        kept = [setting for setting in self._settings if not setting.crosses_barrier]
        for setting in sorted(kept, key=lambda setting: setting.options is not None)[:1]:
            self.trace_open(setting.name, TRACED_STEPS, path)
        return bool(kept)

    def sample(self, session: str, count: int) -> list[dict[str, object]]:
        """Traces `count` steps of a setting: the op times and makespan of each."""
        samples = []
        self._ensure_open(session)
        for number in range(count):
            self._progress(f"tracing {session}", number, count)
            samples.append(self._call(session, do="sample"))
        self._progress(f"tracing {session}", count, count)
        return samples


def _fetch(session: str) -> str:
    return {PULL: "pull", PUSH: "push"}.get(session, "step")


def check_rounds(steps: int, warmup: int) -> None:
    """Refuses step counts that measure nothing."""
    if steps < 1:
        raise BenchError(f"--steps is {steps}: measure at least 1 step")
    if warmup < 0:
        raise BenchError(f"--warmup is {warmup}: give 0 or more steps")
