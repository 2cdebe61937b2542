"""The setting with which a training begins, and the space around it that can be searched while it runs."""

from __future__ import annotations

import os
from typing import Any

from tfsched._options import Options
from tfsched.eager import calls
from tfsched.errors import TfschedError
from tfsched.grappler import graph_records
from tfsched.grappler.bridge import parameters_of
from tfsched.grappler.config import optimizers
from tfsched.grappler.rewrite import load_plan
from tfsched.online.reach import Reach
from tfsched.ops.configure import GRAPH
from tfsched.ops.library import c_api
from tfsched.tuning import Setting, Space

PIECES, CREDITS = (125_000, 8_000_000), (250_000, 32_000_000)
_WAITING = "tictac"
# A ring's last bits depend on how tensors are cut, so its pieces stay (cc/collective/choice.h).
_WAY, _RING = "TFSCHED_ALL_REDUCE", "ring"
_NOT_OPTIONS = ("client", graph_records.PARAMETER)


def options_of(session: Any) -> Options:
    """The options of a session's config, or without a session those of ``tfsched.enable``.

    Raises:
      TfschedError: there are none, so nothing is scheduled.
    """
    if isinstance(session, str):
        return Options()
    if session is None:
        setting = calls.in_force()
        if setting is None:
            raise TfschedError("tfsched is not switched on, so there is nothing to tune; call tfsched.enable() first.")
        return setting.options
    inner = session._tf_sess() if hasattr(session, "_tf_sess") else session
    config = getattr(inner, "_config", None)
    found = optimizers(config) if config is not None else []
    if not found:
        raise TfschedError(
            "the session's config has no tfsched in it, so there is nothing to tune; make it with tfsched.session_config()."
        )
    parameters = parameters_of(found[0])
    return Options.from_parameters({key: value for key, value in parameters.items() if key not in _NOT_OPTIONS})


def first_setting(options: Options, reach: Reach, in_force: tuple[str, int]) -> Setting:
    """What a training runs with that has these options, where ``in_force`` was configured (policy, credit in bytes)."""
    planned = options.plan and load_plan(options.plan).cuts
    settled = options.settled(0 if planned else c_api().tfsched_link_bps(), reach.workers)
    policy = settled.policy if in_force[0] == GRAPH else in_force[0]
    credit_bytes, piece_bytes = settled.credit_bytes, settled.partition_bytes
    if reach.all_reduces:
        piece_bytes, credit_bytes = options.all_reducing(reach.workers, c_api().tfsched_pace_bps())
        # It counts the transfers of a step, which fits no all-reduce: the graph has the other one.
        policy = "bytescheduler" if policy == _WAITING else policy
    return Setting(piece_bytes, credit_bytes if in_force[1] < 0 else in_force[1], policy)


def can_cut(options: Options, reach: Reach) -> bool:
    """Whether pieces are searched, too: all-reduces agree on them call by call; servers' are part of the graph."""
    return reach.all_reduces and not options.plan and os.environ.get(_WAY) != _RING


def space_of(
    first: Setting,
    cuts: bool,
    policies: tuple[str, ...] | None,
    piece_bytes: tuple[int, int],
    credit_bytes: tuple[int, int],
) -> Space:
    """What can be searched. Without ``policies``: the first one, and those that never wait for a missing rank, but prophet.

    Until it has seen three steps in a row prophet is bytescheduler, and few settings are measured in so many.

    Raises:
      TfschedError: a bound or a policy is none.
    """
    if policies is None:
        policies = tuple(dict.fromkeys([first.policy, "bytescheduler", "p3", "fifo"]))
    whole = (first.partition_bytes, first.partition_bytes)
    return Space(piece_bytes if cuts else whole, credit_bytes, policies)
