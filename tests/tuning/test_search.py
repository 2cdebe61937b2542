"""Strategies: what they propose is legal, new, and the same for the same seed; the Bayesian one is soon at the bottom."""

from __future__ import annotations

import itertools
import math
import statistics
import sys

import pytest

from tests.tuning.bowls import BOTTOM_S, FIRST, SPACE, Measured, bowl
from tfsched.errors import TfschedError
from tfsched.tuning import SEARCHES, Setting, Space, make_search
from tfsched.tuning.grid import POINTS

TINY = Space((4096, 6000), (1_000_000, 1_250_000), ("bytescheduler", "p3"))


def proposals(name, space, seed, noise=0.05):
    """Proposals without end, each told one sample of the bowl."""
    search, measure = make_search(name, space, seed), Measured(bowl, noise, seed)
    while (proposal := search.ask()) is not None:
        yield proposal
        search.tell(proposal.setting, *measure(proposal.setting, 1))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SEARCHES)
def test_proposals_are_legal_and_new(name, seed):
    found = [proposal.setting for proposal in itertools.islice(proposals(name, SPACE, seed), 15)]
    assert len(found) == 15 == len(set(found)) and set(found) <= set(SPACE.settings)


@pytest.mark.parametrize("name", SEARCHES)
def test_the_same_seed_proposes_the_same_and_another_one_something_else(name):
    first, again, other = (list(itertools.islice(proposals(name, SPACE, seed), 10)) for seed in (3, 3, 4))
    assert first == again
    assert [proposal.setting for proposal in first] != [proposal.setting for proposal in other]


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_ends_when_all_is_measured(name):
    found = [proposal.setting for proposal in proposals(name, TINY, 0)]
    assert set(found) == set(TINY.settings) and len(found) == len(TINY.settings)


@pytest.mark.parametrize("name", SEARCHES)
def test_what_was_told_is_not_proposed(name):
    search = make_search(name, TINY, 0)
    told = TINY.settings[::2]
    for setting in told:
        search.tell(setting, 1.0)
    found = set()
    while (proposal := search.ask()) is not None:
        found.add(proposal.setting)
        search.tell(proposal.setting, 1.0)
    assert found == set(TINY.settings) - set(told)


@pytest.mark.parametrize("name", SEARCHES)
def test_asking_again_without_telling_proposes_something_else(name):
    search = make_search(name, SPACE, 0)
    assert len({search.ask().setting for _ in range(10)}) == 10


@pytest.mark.parametrize("name", SEARCHES)
def test_every_policy_is_tried_early(name):
    found = [proposal.setting for proposal in itertools.islice(proposals(name, Space(), 0), 25)]
    assert {setting.policy for setting in found} == set(Space().policies)


def test_the_bayesian_search_says_what_it_expects():
    search = make_search("bayesian", SPACE, 0)
    measure = Measured(bowl, 0.0, 0)
    search.tell(FIRST, *measure(FIRST, 1))
    seen = []
    for _ in range(30):
        proposal = search.ask()
        seen.append(proposal.expected_gain)
        search.tell(proposal.setting, *measure(proposal.setting, 1))
    said = [gain for gain in seen if gain is not None]
    assert seen[0] is None and len(said) > 20 and all(0 <= gain < 1 for gain in said)
    assert min(said[-5:]) < 0.01  # little is left to find


def test_the_bayesian_search_is_told_of_settings_outside_of_its_space():
    search = make_search("bayesian", SPACE, 0)
    for setting in (Setting(0, 0, "tictac"), Setting(4096, 1, "bytescheduler"), Setting(2**39, 5, "fifo")):
        search.tell(setting, 1.0)
    for _ in range(8):
        assert search.ask().setting in SPACE.settings


def test_the_bayesian_search_needs_fewer_samples_than_chance():
    def samples(name, seed):
        for number, proposal in enumerate(proposals(name, SPACE, seed), 1):
            if bowl(proposal.setting) <= 1.05 * BOTTOM_S:
                return number
        return math.inf

    seeds = range(7)
    bayesian, random = (statistics.median(samples(name, seed) for seed in seeds) for name in ("bayesian", "random"))
    assert bayesian < random


def test_a_grid_is_as_large_as_it_says():
    space = Space(policies=("bytescheduler", "p3"))
    found = [proposal.setting for proposal in proposals("grid", space, 0)]
    assert len(found) == POINTS * POINTS + POINTS
    assert {space.partitions[0], space.partitions[-1]} < {setting.partition_bytes for setting in found}


def test_an_unknown_search_is_one_sentence():
    with pytest.raises(TfschedError, match="search is 'simplex'; choose one of bayesian, random, grid"):
        make_search("simplex", SPACE)


def test_without_scikit_optimize_one_sentence_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "skopt.acquisition", None)
    with pytest.raises(TfschedError, match=r"pip install 'tfsched\[tune\]', or choose random or grid"):
        make_search("bayesian", SPACE)
    make_search("random", SPACE)
