"""Writes options into the ConfigProto that a call of a tf.function carries."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import tensorflow as tf

from tfsched._log import say_once
from tfsched._options import Options
from tfsched.grappler import crossed_functions
from tfsched.grappler.bridge import parameters_of
from tfsched.grappler.config import add_optimizer, is_switched_off, optimizers, with_plan_inside


class Setting:
    """Options in force for some calls, and who trains with them.

    Attributes:
      options: with the plan's text in place of its path.
      client: names this process's training, for updates in the background.
      crosses: whether updates may go on when a call has returned.
      key: what the pass knows calls with these options by.
      made: serialized ConfigProto of the user -> what :meth:`apply` made of it.
    """

    def __init__(self, options: Options, client: str):
        self.options = with_plan_inside(options)
        self.client = client
        self.crosses = not self.options.barrier
        self.key = crossed_functions.key_of(parameters_of(optimizers(function_config(self.options, client))[0]))
        self.made: dict[bytes, bytes] = {}

    @functools.cached_property
    def with_barrier(self) -> Setting:
        """The same with steps that end with their updates."""
        return Setting(dataclasses.replace(self.options.settled(), barrier=True), self.client)

    @property
    def does_nothing(self) -> bool:
        """Whether calls go on as if tfsched were not there."""
        return self.options.ordering == "none" and not self.crosses

    def apply(self, serialized: bytes) -> bytes:
        """The user's serialized ConfigProto, with tfsched's optimizer in it and all else as it was."""
        made = self.made.get(serialized)
        if made is None:
            made = self.made[serialized] = self._make(serialized)
        return made

    def _make(self, serialized: bytes) -> bytes:
        base = tf.compat.v1.ConfigProto.FromString(serialized)
        if self.does_nothing:
            return serialized
        if is_switched_off(base):
            say_once(
                "the meta optimizer is off (disable_meta_optimizer), and tfsched's pass with it: functions run unscheduled; "
                "tf.config.optimizer.set_experimental_options({'disable_meta_optimizer': False}) turns it on."
            )
            return serialized
        return bytes(function_config(self.options, self.client, base).SerializeToString(deterministic=True))


def function_config(options: Options, client: str, base: Any = None) -> Any:
    """A ConfigProto that has functions rewritten by tfsched; what ``session_config`` is for sessions.

    Args:
      options: what to do.
      client: names who trains; used with ``barrier=False``.
      base: a ConfigProto to start from; it is not changed. None means an empty one.
    """
    config = tf.compat.v1.ConfigProto()
    if base is not None:
        config.CopyFrom(base)
    add_optimizer(config, with_plan_inside(options), client)
    return config
