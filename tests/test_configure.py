"""The values that configure() takes, and how it says no; tests/cluster/test_configure.py has the rest."""

from __future__ import annotations

import math
import re

import pytest

import tfsched
from tfsched._rules import POLICIES


@pytest.fixture(autouse=True)
def _given_back():
    yield
    tfsched.configure(policy="graph", credit_bytes=-1, rate_bps=0)


def in_force():
    stats = tfsched.stats()
    return stats["policy"], stats["credit_bytes"], stats["rate_bps"]


def test_none_leaves_a_value_as_it_is():
    assert in_force() == ("graph", -1, 0)
    assert tfsched.configure(policy="p3").reached == ("this process",)
    assert in_force() == ("p3", -1, 0)
    tfsched.configure(credit_bytes=7)
    assert in_force() == ("p3", 7, 0)
    tfsched.configure(rate_bps=1e9)
    assert in_force() == ("p3", 7, 10**9)
    tfsched.configure()
    assert in_force() == ("p3", 7, 10**9)
    tfsched.configure(policy="graph", credit_bytes=-1, rate_bps=0)
    assert in_force() == ("graph", -1, 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_of_the_options_is_one_of_the_library(policy):
    tfsched.configure(policy=policy)
    assert in_force()[0] == policy


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"policy": "lifo"}, r"policy is 'lifo'; choose one of bytescheduler, fifo, p3, prophet, tictac, graph\."),
        ({"policy": ""}, r"policy is ''; choose one of .*\."),
        ({"policy": 3}, r"policy is 3; choose one of .*\."),
        ({"credit_bytes": -2}, r"credit_bytes is -2; give a number up to \d+, 0 \(no limit\), or -1 \(the graphs' own\)\."),
        ({"credit_bytes": 1 << 60}, r"credit_bytes is \d+; give a number up to .*\."),
        ({"credit_bytes": 1.5}, r"credit_bytes is 1\.5; give a whole number of bytes\."),
        ({"credit_bytes": True}, r"credit_bytes is True; give a whole number of bytes\."),
        ({"rate_bps": -1}, r"rate_bps is -1; give a number from 1 to \d+, or 0 \(no cap\)\."),
        ({"rate_bps": 0.5}, r"rate_bps is 0\.5; give a number from 1 to .*\."),
        ({"rate_bps": math.inf}, r"rate_bps is inf; give a number of bits per second\."),
        ({"rate_bps": "1gbit"}, r"rate_bps is '1gbit'; give a number of bits per second\."),
        (
            {"task": "/job:ps/task:0"},
            r"task is '/job:ps/task:0' but no session was given; give a session .*\.",
        ),
        ({"policy": "p3", "credit_bytes": -7}, r"credit_bytes is -7; .*\."),
        ({"policy": "p3", "timeout_s": 0}, r"timeout_s is 0; give a number of seconds above 0\."),
    ],
)
def test_a_value_that_is_wrong_is_named_and_changes_nothing(values, sentence):
    with pytest.raises(tfsched.TfschedError) as error:
        tfsched.configure(**values)
    assert re.fullmatch(sentence, str(error.value)), error.value
    assert in_force() == ("graph", -1, 0)
