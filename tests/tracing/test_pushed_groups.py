"""What planned pushes leave in: what a plan cuts is in no group, for a server updates piece by piece what leaves alone."""

from __future__ import annotations

from tfsched.ordering import Plan
from tfsched.tracing.exchanges import TracedExchange
from tfsched.tracing.pushes import Push
from tfsched.tracing.step_trace import _with_large_alone


def push(name, size_bytes):
    sent = TracedExchange(name, size_bytes, f"make_{name}", f"use_{name}", name)
    return Push(sent, "/job:worker/replica:0/task:0", "/job:ps/replica:0/task:0", (f"pull_{name}",), "", "")


PUSHES = [push("kernel", 411_000_000), push("bias", 16_384), push("other", 40_000), push("third", 8_000)]
NAMES = [one.sent.name for one in PUSHES]


def grouped(partition_bytes, *groups):
    places = {name: float(place) for place, name in enumerate(NAMES)}
    plan = Plan("pace", places, partition_bytes=dict.fromkeys(NAMES, partition_bytes), groups=groups)
    made = _with_large_alone(plan, PUSHES)
    assert made.priorities == plan.priorities and made.partition_bytes == plan.partition_bytes
    return made.groups


def test_what_is_cut_is_in_no_group():
    # VGG16's largest weights left with their bias: all of them were pushed, then updated, then pulled.
    assert grouped(33_000_000, ("kernel", "bias"), ("other", "third")) == (("other", "third"),)
    assert grouped(33_000_000, ("kernel", "bias", "other")) == (("bias", "other"),)


def test_a_group_of_what_is_whole_stays():
    groups = (("kernel", "bias"), ("other", "third"))
    assert grouped(0, *groups) == groups  # nothing is cut
    assert grouped(500_000_000, *groups) == groups
