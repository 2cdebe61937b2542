"""A setting of the bench as a method of the simulator, so that what is measured can be predicted."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfsched._options import DEFAULTS
from tfsched.bench.settings import Setting

if TYPE_CHECKING:
    from tfsched.ordering import Plan
    from tfsched.simulator import Method


def method_of(setting: Setting, all_reducing: bool = False, plan: Plan | None = None) -> Method:
    """What the simulator calls the setting.

    Where the setting needs a plan and none is given, the ordering plans the simulator's own workload.

    Args:
        setting: one of the bench; without options it is stock TensorFlow.
        all_reducing: whether gradients are all-reduced. TIO's order is that of the layers there.
        plan: what the setting runs.

    Raises:
        SimulatorError: for options that no method has.
    """
    from tfsched.simulator import methods

    if setting.options is None:
        return dataclasses.replace(methods()["vanilla"], name=setting.name)
    options = {**DEFAULTS, **setting.options}
    ordering, policy = options["ordering"], options["policy"]
    if plan is not None:
        ordering = "tio"  # of what the plan does not name
    if all_reducing and ordering == "tio":
        ordering = "layer"
    if all_reducing and ordering == "fifo":
        policy = "fifo"  # all have the same rank there: as they become ready
    return dataclasses.replace(
        methods()[ordering],
        name=setting.name,
        plan=plan,
        policy=policy,
        partition_bytes=options["partition_bytes"] or None,  # 0: what the ordering decides
        credit_bytes=options["credit_bytes"],
        barrier=options["barrier"],
    )
