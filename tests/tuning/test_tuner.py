"""The tuner on steps whose times are known: where it ends, what it takes, what its log says."""

from __future__ import annotations

import collections
import csv
import io
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tuning.bowls import BOTTOM_S, FIRST, SPACE, Measured, bowl, flat
from tfsched.errors import TfschedError
from tfsched.tuning import Rules, Setting, Tuner, csv_text, make_search, picture, run

BOTTOM = Setting(800_000, 2_000_000, "bytescheduler")


def tuned(measure, name="random", seed=0, first=FIRST, remembered=None, **rules):
    """The tuner at its end."""
    tuner = Tuner(make_search(name, SPACE, seed), first, Rules(**rules), remembered)
    run(tuner, measure)
    return tuner


def setting_in(row, prefix=""):
    """The setting that a row of the log names."""
    partition, credit, policy = (row[prefix + name] for name in Setting._fields)
    return Setting(int(partition), int(credit), policy)


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_it_ends_near_the_bottom_of_a_bowl(noise):
    ends = [bowl(tuned(Measured(bowl, noise, seed), "bayesian", seed).decision.setting) for seed in range(8)]
    near = sum(end <= (1.08 if noise else 1.03) * BOTTOM_S for end in ends)
    assert near >= 7, ends
    assert max(ends) < bowl(FIRST)


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("name", ["random", "grid"])
def test_with_all_settings_alike_it_ends_at_the_first(name, noise):
    wrong = 0
    for seed in range(40):
        decision = tuned(Measured(flat, noise, seed), name, seed).decision
        assert decision.changed == (decision.setting != FIRST) == (decision.gain > 0)
        assert decision.reason.startswith(
            f"Chose {decision.setting}" if decision.changed else f"Stays with the first setting ({FIRST})"
        )
        wrong += decision.changed
    assert wrong <= (2 if noise else 0)  # the last test errs in one of a hundred


def test_with_all_settings_alike_the_bayesian_search_ends_at_the_first_too():
    for seed in range(4):
        decision = tuned(Measured(flat, 0.05, seed), "bayesian", seed).decision
        assert decision.setting == FIRST


def test_a_first_setting_that_is_the_best_stays():
    for seed in range(10):
        assert tuned(Measured(bowl, 0.02, seed), seed=seed, first=BOTTOM).decision.setting == BOTTOM


def test_a_lucky_sample_does_not_make_a_setting_the_best():
    calls = []

    def lucky(setting, samples):
        """All alike, but the first sample of each setting but the first one takes half as long."""
        new = setting not in calls and setting != FIRST
        calls.append(setting)
        return [BOTTOM_S * (0.5 if new else 1.0) * (1 + 0.01 * math.sin(len(calls) + n)) for n in range(samples)]

    assert tuned(lucky).decision.setting == FIRST


def gentle(setting: Setting) -> float:
    """The first setting takes a quarter longer than all others."""
    return BOTTOM_S * (1.25 if setting == FIRST else 1.0)


def test_steps_that_hiccup_hide_no_gain_and_make_none():
    """One step in twenty takes up to eight times as long, as beside another program or while a checkpoint is written."""
    changed = {gentle: 0, flat: 0}
    for seconds_of in changed:
        for seed in range(40):
            measure, random = Measured(seconds_of, 0.1, seed), np.random.default_rng(seed)

            def hiccuping(setting, samples, measure=measure, random=random):
                return [one * (1 + 7 * (random.random() < 0.05) * random.random()) for one in measure(setting, samples)]

            changed[seconds_of] += tuned(hiccuping, seed=seed).decision.changed
    assert changed[gentle] >= 36 and changed[flat] <= 2, changed


def test_a_setting_that_is_often_slow_is_no_better_for_being_fast_at_times():
    calls = collections.Counter()

    def torn(setting, samples):
        calls[setting] += 1
        often = setting != FIRST and calls[setting] % 3 == 0
        return [
            BOTTOM_S * (5.0 if often else 0.9 if setting != FIRST else 1.0) * (1 + 0.01 * math.sin(sum(calls.values())))
        ] * samples

    assert tuned(torn).decision.setting == FIRST


@settings(deadline=None, max_examples=40)
@given(
    budget=st.integers(13, 150),
    noise=st.sampled_from([0.0, 0.03, 0.2]),
    seed=st.integers(0, 1000),
    name=st.sampled_from(["random", "grid"]),
    remembered=st.sampled_from([None, FIRST, BOTTOM]),
)
def test_the_budget_is_kept_and_the_log_is_what_was_measured(budget, noise, seed, name, remembered):
    measure = Measured(bowl, noise, seed)
    tuner = tuned(measure, name, seed, remembered=remembered, budget=budget)
    decision = tuner.decision
    assert len(measure.samples) <= budget and decision.samples == len(measure.samples)
    rows = list(csv.DictReader(io.StringIO(csv_text(tuner.records))))
    logged = [(setting_in(row), float(row["seconds"])) for row in rows]
    assert logged == measure.samples
    assert [int(row["number"]) for row in rows] == list(range(1, len(rows) + 1))
    assert all(row["why"] for row in rows)
    seen = set()
    for row, (setting, _) in zip(rows, logged, strict=True):
        seen.add(setting)
        best = setting_in(row, "best_")
        assert best in seen
    assert best == decision.setting and float(row["best_seconds"]) == pytest.approx(decision.seconds)
    mine = [math.log(seconds) for setting, seconds in logged if setting == decision.setting]
    assert min(mine) - 1e-9 <= math.log(decision.seconds) <= sum(mine) / len(mine) + 1e-9
    if not tuner.samples.hiccups():
        assert math.log(decision.seconds) == pytest.approx(sum(mine) / len(mine))
    assert decision.settings == len(seen)


def test_the_remembered_setting_is_measured_second_and_can_win():
    measure = Measured(bowl, 0.02, 0)
    tuner = tuned(measure, remembered=BOTTOM)
    order = list(dict.fromkeys(setting for setting, _ in measure.samples))
    assert order[:2] == [FIRST, BOTTOM]
    assert tuner.decision.setting == BOTTOM
    assert tuner.decision.gain == pytest.approx(1 - bowl(BOTTOM) / bowl(FIRST), abs=0.05)
    assert "remembered as the best" in {record.why for record in tuner.records}


def test_without_noise_nothing_is_measured_again_but_to_begin_and_to_confirm():
    tuner = tuned(Measured(bowl, 0.0, 0), name="grid")
    rules = Rules()
    for setting in tuner.samples.settings:
        confirmed = setting in (FIRST, tuner.decision.setting)
        begun = setting == FIRST
        assert tuner.samples.count(setting) == (rules.first_samples if begun else 1) + rules.confirm[0] * confirmed
    assert tuner.decision.setting == min(tuner.samples.settings, key=bowl)
    assert "nothing left to propose" in tuner.decision.reason


def test_what_is_clearly_worse_is_measured_once():
    def steep(setting):
        return BOTTOM_S if setting == FIRST else 2 * BOTTOM_S

    tuner = tuned(Measured(steep, 0.02, 0))
    assert {tuner.samples.count(setting) for setting in tuner.samples.settings} == {1, Rules().first_samples}


def test_the_bayesian_search_stops_by_itself():
    tuner = tuned(Measured(bowl, 0.0, 0), "bayesian", budget=400)
    assert tuner.decision.samples < 150
    assert "the search expects no more than 0.5%" in tuner.decision.reason


def test_a_training_can_drive_it_in_turns():
    driven = Tuner(make_search("random", SPACE, 0), FIRST)
    measure = Measured(bowl, 0.05, 0)
    while (trial := driven.ask()) is not None:
        assert driven.ask() == trial and driven.decision is None
        driven.tell(measure(trial.setting, trial.samples))
    assert driven.decision == tuned(Measured(bowl, 0.05, 0)).decision
    with pytest.raises(TfschedError, match="has decided and takes no more samples"):
        driven.tell([1.0])


@pytest.mark.parametrize("wrong", [[1.0], [1.0] * 3 + [math.nan], [1.0] * 3 + [0.0], [1.0] * 3 + [-1.0], [math.inf] * 4])
def test_wrong_samples_are_one_sentence_and_change_nothing(wrong):
    tuner = Tuner(make_search("random", SPACE, 0), FIRST)
    with pytest.raises(TfschedError, match=r"asked for 4 sample\(s\) and got 1|give finite times above zero"):
        tuner.tell(wrong)
    assert not tuner.records and tuner.ask().setting == FIRST
    run(tuner, Measured(bowl, 0.0, 0))


def test_a_budget_that_decides_nothing_is_one_sentence():
    with pytest.raises(TfschedError, match="budget is 12 samples; give 13 or more"):
        Rules(budget=12)


def test_the_picture_is_a_png():
    tuner = tuned(Measured(bowl, 0.05, 0))
    assert picture.png(tuner.records, "a $tuning$\n").startswith(b"\x89PNG")


def test_a_search_that_is_ended_is_confirmed_and_over():
    """Who measures a training that runs says when bad settings have cost enough."""
    measure = Measured(bowl, 0.02, 0)
    tuner = Tuner(make_search("random", SPACE, 0), FIRST)
    while (trial := tuner.ask()) is not None:
        if len(measure.samples) > 12:
            tuner.end_search("it has cost enough")
        tuner.tell(measure(trial.setting, trial.samples))
    assert "ended because it has cost enough." in tuner.decision.reason
    after = [record.why for record in tuner.records[14:]]
    assert tuner.decision.changed and after and all("to confirm" in why for why in after)
