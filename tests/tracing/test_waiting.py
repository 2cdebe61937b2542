"""Pushes are planned by when ops would run if nothing had to be waited for."""

from __future__ import annotations

import random

import pytest

from tfsched.tracing import TracedStep
from tfsched.tracing.pushes import computing_alone

WORKER, SERVER = "/job:worker/replica:0/task:0", "/job:ps/replica:0/task:0"


@pytest.mark.parametrize("seed", range(30))
def test_waiting_is_taken_out_of_a_step_and_nothing_else(seed: int) -> None:
    draw = random.Random(seed)
    nodes, busy, waiting = [], {}, {}
    now_us, waited_us = draw.randint(0, 10**9), 0
    for number in range(draw.randint(1, 20)):
        name = f"op{number}"
        # Two ops at once, the next one when the longer one is over or while it still runs.
        nodes.append((name, "MatMul", f"{WORKER}/device:CPU:0", []))
        duration_us = draw.choice([0, 1, 70, 3000])
        busy[name] = (now_us, duration_us)
        waiting[name] = (now_us + waited_us, duration_us)
        if draw.random() < 0.6:
            now_us = max(start + length for start, length in busy.values())
            waited_us += draw.choice([0, 5, 4000])
    nodes.append(("other", "AddV2", f"{SERVER}/device:CPU:0", []))
    nodes.append(("tenth", "AddV2", f"{WORKER}0/device:CPU:0", []))
    others = {"other": (now_us + 3, 10**6), "tenth": (now_us - 7, 10**6)}
    steps = [TracedStep(0, 10**10, {**ops, **others}, {}) for ops in (busy, waiting)]
    alone = [step.ops for step in computing_alone(steps, nodes, WORKER)]
    assert alone[0] == busy
    assert alone[1] == busy
