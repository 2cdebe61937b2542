"""A setting of the bench as a method of the simulator, so that what is measured can be predicted."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfsched._options import Options
from tfsched.bench.settings import Setting

if TYPE_CHECKING:
    from tfsched.ordering import Plan
    from tfsched.simulator import Method


def method_of(
    setting: Setting, all_reducing: bool = False, plan: Plan | None = None, workers: int = 1, link_bps: float = 0
) -> Method:
    """What the simulator calls the setting.

    Where the setting needs a plan and none is given, the ordering plans the simulator's own workload.

    Args:
        setting: one of the bench; without options it is stock TensorFlow.
        all_reducing: whether gradients are all-reduced. TIO's order is that of the layers there.
        plan: what the setting runs.
        workers: how many there are.
        link_bps: how fast their links are, in bits per second; 0: not known.

    Raises:
        TfschedError: an option has a value that it cannot have.
    """
    from tfsched.simulator import methods

    if setting.options is None:
        return dataclasses.replace(methods()["vanilla"], name=setting.name)
    given = Options.from_parameters(setting.options)
    options = given.settled(0 if plan and plan.cuts else link_bps, workers)
    ordering, policy = options.ordering, options.policy
    if plan is not None:
        ordering = "tio"  # of what the plan does not name
    if all_reducing and ordering == "tio":
        ordering = "layer"
    if ordering == "fifo" and (all_reducing or options.never_waits):
        policy = "fifo"  # all have the same rank then: as they become ready
    credit_bytes = options.credit_bytes
    if all_reducing:
        _, credit_bytes = given.all_reducing(workers, link_bps)
    return dataclasses.replace(
        methods()[ordering],
        name=setting.name,
        plan=plan,
        policy=policy,
        partition_bytes=max((given if all_reducing else options).partition_bytes, 0) or None,  # what the ordering decides
        credit_bytes=credit_bytes,
        barrier=options.barrier,
    )
