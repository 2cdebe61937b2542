"""Decides among noisy samples: measures what a search proposes, again where the noise asks for it, and ends by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

from tfsched.errors import TfschedError

from .decision import Decision, Rules
from .log import Record
from .samples import Samples, mean
from .search import Proposal, Search
from .space import Setting


class Trial(NamedTuple):
    """What to measure next: so many samples of a setting."""

    setting: Setting
    samples: int
    why: str


# It yields what to measure; when it is resumed, the samples are in Tuner.samples.
_Procedure = Generator[Trial, None, None]


class Tuner:
    """Finds a setting that is faster than the first one by more than the noise.

    1. The first setting is measured `Rules.first_samples` times; `remembered`, if given, is compared next.
    2. Each setting that the search proposes is compared with the best so far: one sample, and then one more of whichever has
       fewer, until a one-sided t-test on log seconds (`Samples.p_value`) says that the new one is faster (the level divided
       by the looks), or that it is not faster by `Rules.least_gain`, or until both have `Rules.most_samples`. The one with
       the smaller mean is the best.
    3. The search ends when it expects nothing more (`Rules.least_expected`), has nothing left, or the budget is used up but
       for what the end needs.
    4. The best of many means is partly luck. So the best and the first setting are measured again in turns, and only these
       fresh samples decide: the same t-test after each look of `Rules.confirm`, the level divided by the looks (Bonferroni).
       If it does not say that the best is faster, the tuner ends at the first setting.

    A sample is the time of one step, or the median of a few where single steps have outliers. Use it by `run`, or in turns:
    `ask` says what to measure, `tell` gives what was measured, until `ask` returns None and `decision` is there.

    Attributes:
      samples: all that was told.
      records: one for each sample.
      best: the setting that is taken for the best now.
      decision: None until the end.
    """

    def __init__(self, search: Search, first: Setting, rules: Rules | None = None, remembered: Setting | None = None):
        self.samples = Samples()
        self.records: list[Record] = []
        self.best = first
        self.decision: Decision | None = None
        self._search = search
        self._first = first
        self._rules = rules or Rules()
        self._remembered = remembered
        self._stopped = ""
        self._ended = ""
        self._fresh: dict[Setting, list[float]] = {}
        self._procedure = self._run()
        self._trial: Trial | None = next(self._procedure)

    def ask(self) -> Trial | None:
        """What to measure next, the same until `tell`; None when the tuner has decided."""
        return self._trial

    def tell(self, seconds: Sequence[float]) -> None:
        """The seconds of the samples that `ask` asked for.

        Raises TfschedError if they are not as many, or not all finite and above zero.
        """
        trial = self._trial
        if trial is None:
            raise TfschedError("The tuner has decided and takes no more samples; make another one.")
        if len(seconds) != trial.samples:
            raise TfschedError(f"The tuner asked for {trial.samples} sample(s) and got {len(seconds)}; give as many.")
        for one in seconds:
            if not (math.isfinite(one) and one > 0):
                raise TfschedError(f"A sample of {trial.setting} took {one} s; give finite times above zero.")
        for one in seconds:
            self.samples.add(trial.setting, one)
            self._search.tell(trial.setting, one)
        self._trial = next(self._procedure, None)
        for one in seconds:
            number = len(self.records) + 1
            best_seconds = self.samples.seconds(self.best)
            self.records.append(Record(number, trial.setting, one, self.best, best_seconds, trial.why))

    def end_search(self, why: str) -> None:
        """Nothing new is proposed from the next `tell` on; the best setting so far is confirmed, and the tuner decides.

        `why` ends the sentence "ended because". For who measures a training that runs, and pays for bad settings.
        """
        self._ended = self._ended or why

    def _search_is_over(self) -> bool:
        return bool(self._ended) or self._left() <= self._rules.reserve

    def _left(self) -> int:
        """Samples that the budget still allows."""
        return self._rules.budget - sum(map(self.samples.count, self.samples.settings))

    def _run(self) -> _Procedure:
        yield Trial(self._first, self._rules.first_samples, "first setting")
        for proposal in self._proposals():
            yield from self._race(proposal)
        found = self.best
        if found != self._first:
            yield from self._confirm(found)
        self._decide(found)

    def _proposals(self) -> Iterator[Proposal]:
        if self._remembered is not None and self._remembered != self._first:
            yield Proposal(self._remembered, "remembered as the best")
        unpromising = 0
        while not self._search_is_over():
            proposal = self._search.ask()
            if proposal is None:
                self._stopped = "the search has nothing left to propose"
                return
            expected = proposal.expected_gain
            unpromising = unpromising + 1 if expected is not None and expected < self._rules.least_expected else 0
            if unpromising >= self._rules.proposals:
                self._stopped = f"the search expects no more than {self._rules.least_expected:.1%} from any other"
                return
            if proposal.setting != self._first:
                yield proposal
        self._stopped = self._ended or f"the search's share of {self._rules.budget} samples was used up"

    def _race(self, proposal: Proposal) -> _Procedure:
        """Compares a setting with the best, which it may become."""
        new, best, count = proposal.setting, self.best, self.samples.count
        if not count(new):
            yield Trial(new, 1, proposal.why)
        while not self._is_clear(new, best):
            least = new if count(new) <= count(best) else best
            if count(least) >= self._rules.most_samples:
                break
            if self._search_is_over():
                return  # a lucky sample or two must not take the place of what was measured well
            yield Trial(least, 1, f"again, {new} is not yet told apart from the best")
        if self.samples.log_mean(new) < self.samples.log_mean(best):
            self.best = new

    def _is_clear(self, new: Setting, best: Setting) -> bool:
        samples, rules = self.samples, self._rules
        gain = samples.log_mean(best) - samples.log_mean(new)
        counts = samples.count(new), samples.count(best)
        # A lucky first sample must not end it: there are as many looks as samples.
        faster = samples.p_value(gain, *counts) < rules.level / rules.most_samples
        if counts[0] == 1 and samples.hiccups() and not faster:
            return False  # steps have hiccups here, and this one may have been one
        return faster or samples.p_value(rules.least_log_gain - gain, *counts) < rules.level

    def _confirm(self, found: Setting) -> _Procedure:
        """Measures `found` and the first setting in turns; `found` stays the best only if it is faster."""
        rules = self._rules
        before = {setting: self.samples.count(setting) for setting in (self._first, found)}

        def fresh(setting: Setting) -> list[float]:
            return self.samples.of(setting)[before[setting] :]

        level = rules.confirm_level / len(rules.confirm)
        confirmed = False
        looks = [look for look in rules.confirm if 2 * look <= self._left()]
        for look in looks:
            while len(fresh(found)) < look:
                # Whichever comes first would carry a drift of the machine.
                pair = (self._first, found) if len(fresh(found)) % 2 else (found, self._first)
                for setting in pair:
                    yield Trial(setting, 1, f"again, to confirm {found} against the first setting")
            gain = mean(fresh(self._first)) - mean(fresh(found))
            confirmed = self.samples.p_value(gain, look, look) < level and self._hiccups_no_more(found, look == looks[-1])
            if confirmed or self.samples.p_value(rules.least_log_gain - gain, look, look) < level:
                break
        self._fresh = {setting: fresh(setting) for setting in (self._first, found)}
        if not confirmed:
            self.best = self._first

    def _hiccups_no_more(self, found: Setting, at_last: bool) -> bool:
        """Whether `found` has no more hiccups than the first setting; at the last look, whether that may be chance."""
        samples, first = self.samples, self._first
        if at_last:
            return samples.p_value_of_hiccups(found, first) >= self._rules.level
        return samples.hiccups(found) * samples.count(first) <= samples.hiccups(first) * samples.count(found)

    def _decide(self, found: Setting) -> None:
        samples, first = self.samples, self._first
        taken = sum(map(samples.count, samples.settings))
        noise = f"the noise ({math.expm1(samples.noise()[0]):.1%} of a sample)"
        gain = 0.0
        if self.best != first:
            gain = -math.expm1(mean(self._fresh[found]) - mean(self._fresh[first]))
            said = (
                f"Chose {found}: a step takes {gain:.1%} less time than under the first setting ({first}), "
                f"by {len(self._fresh[found])} fresh samples of each"
            )
        elif found != first:
            said = (
                f"Stays with the first setting ({first}): the best other one ({found}) is not faster by more than {noise}, "
                f"by {len(self._fresh[found])} fresh samples of each"
            )
        else:
            said = f"Stays with the first setting ({first}): no other one was faster by more than {noise}"
        self.decision = Decision(
            setting=self.best,
            first=first,
            seconds=samples.seconds(self.best),
            first_seconds=samples.seconds(first),
            gain=gain,
            samples=taken,
            settings=len(samples.settings),
            reason=f"{said}; {taken} samples of {len(samples.settings)} settings, ended because {self._stopped}.",
        )


def run(tuner: Tuner, measure: Callable[[Setting, int], Sequence[float]]) -> Decision:
    """Tunes to the end. `measure` takes a setting and a number of samples and returns as many, in seconds of a step."""
    while (trial := tuner.ask()) is not None:
        tuner.tell(measure(trial.setting, trial.samples))
    assert tuner.decision is not None
    return tuner.decision
