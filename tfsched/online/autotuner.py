"""``tfsched.autotune``: measures the steps that a program gives it, and changes the cluster's settings between them."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from concurrent import futures
from typing import Any

from tfsched._options import Options
from tfsched.control import about
from tfsched.errors import TfschedError
from tfsched.online import first as beginning
from tfsched.online import reach as reaching
from tfsched.online.results import Results, listed, say
from tfsched.online.steps import Steps
from tfsched.online.switch import Switch, say_if_not
from tfsched.tuning import SEARCHES, Decision, Rules, Setting, Space, Trial, Tuner, make_search

# Steps after a change that are not measured: what was queued or under way before it is still on its way.
_SETTLE = 1
# Before the first sample: tracing, connecting, the first transfer of each tensor.
WARMUP = 5
# A step that takes so many times as long as the best setting's needs no second one.
_BAD = 2.0
# While the tuner computes, training goes back to the best setting if the one in force is slower by more than this.
_SLOWER = 1.05
# Of each of two settings that are compared: where steps vary by a tenth, twice as many would still not tell like ones apart.
_MOST_SAMPLES = 4
# After how many fresh samples of the best and of the first setting the end is tried: a first setting that is bad by far need
# not be endured four times.
_CONFIRM = (2, 4, 8, 16)
# How long a step's end waits for the tuner, as a part of a step: most answers come at once.
_PATIENCE = 0.02
# How long training waits, between two steps, for all tasks to change. Where one does not answer steps go on meanwhile.
_BOUNDARY_S = 1.0
# What a search may cost, in steps. The end costs some more: up to 16 steps under a first setting that is a little worse, two
# under one that is far worse. All of it shall stay below 25, which is 5 % of 500.
LOST_STEPS = 12.0


class autotune(Steps):  # a user calls it as a function
    """Tunes the training whose steps it is given: policy and credit, and where workers all-reduce the size of pieces.

    Use it in the process that decides: the session's client, the coordinator, each worker of an all-reduce (the first one
    decides, in the others nothing happens)::

        tuner = tfsched.autotune(session)
        for batch in batches:
            with tuner.step():
                session.run(train, {inputs: batch})

    Results of training are the same with and without it: it only changes which transfer goes when. It ends by itself at the
    best setting, or at the first one if no other is faster, and says so in one line. If a task does not answer it puts the
    first setting back, says so, and training goes on. One thread gives the steps.

    Args:
      where: a session of the cluster, or its target ("grpc://host:port"); None for the cluster that this process has joined
        with TensorFlow 2.
      options: with which training runs; None takes those of the session's config, or of ``tfsched.enable``.
      policies: to try; None for the first one, bytescheduler, p3 and fifo.
      piece_bytes: least and most bytes of pieces to try. Counts for all-reduces only.
      credit_bytes: least and most credit to try.
      search: "bayesian", "random" or "grid".
      samples: to take, at most.
      lost_steps: the search ends when it has cost the time of so many steps, beyond those of the best setting so far.
      warmup: steps before the first sample.
      model: a name under which ``memory`` keeps the result.
      memory: a JSON file with the best settings by model and cluster. What is known is tried second.
      csv: write the samples to this file at the end.
      plot: draw them into this PNG at the end.
      seed: of the search.
      clock: seconds, for tests.

    Raises:
      TfschedError: a value that is none of these, or scikit-optimize is missing. At the first step: nothing is scheduled, so
        there is nothing to tune.

    Attributes:
      decision: the tfsched.tuning.Decision; None before the end, and where there is none.
      state: as of Steps.
      lost_s: seconds that tuning has cost so far: what its steps took beyond the best setting's, and the changes themselves.
    """

    def __init__(
        self,
        where: Any = None,
        *,
        options: Options | None = None,
        policies: tuple[str, ...] | None = None,
        piece_bytes: tuple[int, int] = beginning.PIECES,
        credit_bytes: tuple[int, int] = beginning.CREDITS,
        search: str = "bayesian",
        samples: int = Rules.budget,
        lost_steps: float = LOST_STEPS,
        warmup: int = WARMUP,
        model: str = "",
        memory: str = "",
        csv: str = "",
        plot: str = "",
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__(clock)
        if options is not None and not isinstance(options, Options):
            raise TfschedError(f"autotune got {options!r} as options; give a tfsched.Options.")
        if warmup < 0 or lost_steps < 0:
            raise TfschedError(f"warmup is {warmup} and lost_steps is {lost_steps}; give 0 or more.")
        Space(piece_bytes, credit_bytes, policies or ("fifo",))
        if search not in SEARCHES or importlib.util.find_spec("skopt") is None:
            make_search(search, Space())  # says what is wrong
        self._rules = Rules(budget=samples, most_samples=_MOST_SAMPLES, confirm=_CONFIRM)
        self._results = Results(model, memory, csv, plot)
        self._where, self._options, self._search, self._seed = where, options, search, seed
        self._bounds = (policies, piece_bytes, credit_bytes)
        self._lost_steps, self._warmup = lost_steps, warmup
        self.decision: Decision | None = None
        self.lost_s = 0.0
        self._reach: reaching.Reach | None = None
        self._pool: futures.ThreadPoolExecutor | None = None
        self._thinking: futures.Future[Any] | None = None  # the tuner computes: it must not be touched
        self._switch: Switch | None = None
        self._tuner: Tuner | None = None
        self._cuts = False
        self._trial: Trial | None = None
        self._samples: list[float] = []
        self._settle = 0
        self._steps = 0
        self._best: Setting | None = None
        self._best_s = self._last_s = 0.0  # a step's seconds, of the best setting and of the last step

    def close(self) -> None:
        """Training has ended. Without a decision the first setting is put back."""
        if self.state == "searching":
            self._stop("training has ended before a decision")

    def renewed(self, session: Any) -> None:
        """Another session has taken the place of the one that autotune was given. Its tasks may have been started anew."""
        self._where = session
        self._began_s = None
        if self.state == "searching":
            self._stop("the session was lost")
        elif self.decision is not None and self.decision.changed:
            try:
                say_if_not(reaching.of_session(session).apply(self.decision.setting, self._cuts))
            except TfschedError as error:
                say(str(error))

    def _start(self) -> None:
        """Sees what there is to tune; the rest is done beside the first steps."""
        options = self._options or beginning.options_of(self._where)
        try:
            reach = reaching.of_cluster() if self._where is None else reaching.of_session(self._where)
        except TfschedError as error:  # a program may run alone, too
            self._stop(str(error))
            return
        if reach is None:
            self.state = "elsewhere"
            return
        self._reach = reach
        self._pool = futures.ThreadPoolExecutor(2, thread_name_prefix="tfsched-autotune")
        self._thinking = self._pool.submit(self._prepare, options, reach)
        self.state = "searching"
        about.tell("tuner", self._told)

    def _prepare(self, options: Options, reach: reaching.Reach) -> None:
        in_force = reach.begin()
        self._cuts = beginning.can_cut(options, reach)
        first = beginning.first_setting(options, reach, in_force)
        space = beginning.space_of(first, self._cuts, *self._bounds)
        known = self._results.recall(reach)
        search = make_search(self._search, space, self._seed)
        self._best = first
        self._tuner = Tuner(search, first, self._rules, space.nearest(known) if known else None)
        assert self._pool is not None
        self._switch = Switch(reach, first, self._cuts, self._pool)

    def _ended(self, seconds: float, count: int) -> None:
        """A step has ended: decides what the next one runs with."""
        self._steps += count
        self._last_s = seconds
        if self._best_s and self._switch is not None and self._switch.in_force != self._best:
            self.lost_s += count * max(0.0, seconds - self._best_s)
        if self._switch is not None and not self._switch.is_done():
            return
        if self._thinking is None:
            self._measured(seconds)
        if self._thinking is not None:
            self._take_answer(_PATIENCE * seconds)

    def _measured(self, seconds: float) -> None:
        assert self._trial is not None and self._tuner is not None and self._pool is not None
        if self._settle > 0:
            self._settle -= 1
            is_bad = self._trial.setting != self._best and seconds > _BAD * self._best_s > 0
            if self._settle > 0 or not is_bad:
                return
        self._samples.append(seconds)
        if len(self._samples) < self._trial.samples:
            return
        if self._best_s and self.lost_s > self._lost_steps * self._best_s:
            self._tuner.end_search(f"the search has cost the time of {self.lost_s / self._best_s:.0f} steps")
        self._thinking = self._pool.submit(self._tuner.tell, self._samples)
        self._samples = []

    def _take_answer(self, limit_s: float) -> None:
        assert self._thinking is not None
        try:
            self._thinking.result(limit_s)
        except futures.TimeoutError:
            if self._best_s and self._best is not None and self._last_s > _SLOWER * self._best_s:
                self._change(self._best)
            return
        self._thinking = None
        tuner = self._tuner
        assert tuner is not None
        self._best = tuner.best
        if tuner.samples.count(tuner.best):
            self._best_s = tuner.samples.seconds(tuner.best)
        if tuner.decision is not None:
            self._decide(tuner.decision)
            return
        self._trial = tuner.ask()
        assert self._trial is not None
        self._change(self._trial.setting)
        self._settle = max(self._settle, self._warmup - self._steps)

    def _change(self, setting: Setting) -> None:
        """Puts a setting in force, before the next step begins if all tasks answer by then.

        Raises:
          TfschedError: a task cannot be reached.
        """
        assert self._switch is not None
        if setting == self._switch.in_force:
            return
        began_s = self._clock()
        # What a slow setting has left behind would be taken for the next one's slowness.
        self._settle = _SETTLE + (self._last_s > _BAD * self._best_s > 0)
        self._switch.to(setting)
        self._switch.is_done(_BOUNDARY_S)
        self.lost_s += self._clock() - began_s

    def _decide(self, decision: Decision) -> None:
        self._change(decision.setting)
        if self._switch is not None:
            self._switch.leave()
        self.state, self.decision = "decided", decision
        say(
            f"autotune: {decision.reason} Tuning has cost the time of {self.lost_s / decision.seconds:.1f} steps"
            f"{self._left_alone()}."
        )
        self._finish(lambda: None)

    def _stop(self, why: str) -> None:
        """Gives up. The first setting is put back in the background: a task that does not answer is waited for there."""
        self.state = "stopped"
        say(f"autotune stopped, and the first setting is put back: {why.rstrip('.')}.")
        self._finish(self._put_back)

    def _put_back(self) -> None:
        if self._switch is not None:
            self._switch.put_back()

    def _finish(self, last: Callable[[], Any]) -> None:
        def finish() -> None:
            last()
            if self._tuner is not None and self._reach is not None:
                for problem in self._results.keep(self._tuner, self._reach):
                    say(problem)

        if self._pool is not None:  # behind what it may still be doing
            self._pool.submit(finish)
            self._pool.shutdown(wait=False)

    def wait(self, timeout_s: float = 60.0) -> None:
        """Waits until files are written, and, where autotune has stopped, the first setting is back."""
        deadline_s = time.monotonic() + timeout_s
        for thread in list(getattr(self._pool, "_threads", ())):
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _left_alone(self) -> str:
        skipped = self._reach.skipped if self._reach else {}
        return f"; left alone: {listed(skipped)}" if skipped else ""

    def _told(self) -> dict[str, Any]:
        """For the control service."""
        told: dict[str, Any] = {"state": self.state, "lost_s": self.lost_s}
        if self._switch is not None:
            told["in_force"] = str(self._switch.in_force)
        if self._tuner is not None:
            told.update(samples=len(self._tuner.records), best=str(self._best))
        return told
