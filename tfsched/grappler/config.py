"""Writes options into a session's ConfigProto."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import os
import uuid
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import rewriter_config_pb2

from tfsched._log import say_once
from tfsched._options import Options
from tfsched.errors import TfschedError
from tfsched.grappler import summary
from tfsched.grappler.barrier.closing import drain_at_close
from tfsched.grappler.bridge import install
from tfsched.grappler.graph_records import PARAMETER
from tfsched.grappler.rewrite import load_plan

OPTIMIZER = "tfsched"


def session_config(options: Options | None = None, base: Any = None) -> Any:
    """A ConfigProto that has the session's graphs rewritten by tfsched.

    Args:
      options: what to do; None means ``Options()``.
      base: a ConfigProto to start from; it is not changed. None means an empty one.

    Returns:
      A tf.compat.v1.ConfigProto. A plan is read here and travels inside it, for the pass may run on another machine.

    Raises:
      TfschedError: ``options`` or ``base`` is of another type.
      ValueError: the plan cannot be read.
    """
    install()  # a session in this process needs the optimizer that it names
    options = Options() if options is None else options
    if not isinstance(options, Options):
        raise TfschedError(f"session_config got {options!r} as options; give a tfsched.Options.")
    say_once(f"scheduling is on: {options.describe()}.", logging.INFO)
    summary.at_exit()
    config = tf.compat.v1.ConfigProto()
    if base is not None:
        if not isinstance(base, type(config)):
            raise TfschedError(f"session_config got {base!r} as base; give a tf.compat.v1.ConfigProto.")
        config.CopyFrom(base)
    if not options.barrier:
        if config.isolate_session_state:
            raise TfschedError(
                "The base config has isolate_session_state set, and updates cannot run in the background of a session with "
                "variables of its own; clear it, or use Options(barrier=True)."
            )
        drain_at_close()
    # Sessions made from one config are one trainer. Those of one program see each other's steps.
    add_optimizer(config, with_plan_inside(options), f"{_program(os.getpid())}+{uuid.uuid4().hex}")
    if is_switched_off(config):
        raise TfschedError(
            "The base config has rewrite_options.disable_meta_optimizer set, which turns tfsched's pass off too; clear it."
        )
    return config


@functools.lru_cache(maxsize=1)
def _program(pid: int) -> str:
    """Names this process; a fork is another one."""
    return uuid.uuid4().hex


def with_plan_inside(options: Options) -> Options:
    """The options with the plan's text in place of its path, for the pass may run on another machine.

    Raises:
      ValueError: the plan cannot be read.
    """
    if not options.plan:
        return options
    return dataclasses.replace(options, plan=json.dumps(load_plan(options.plan).to_json()))


def add_optimizer(config: Any, options: Options, client: str) -> None:
    """Writes the entry of Grappler's optimizer into a ConfigProto, in place of one that is there.

    Args:
      config: changed in place.
      options: its plan, if any, as text.
      client: who trains; used where the options cross the barrier.
    """
    rewrite = config.graph_options.rewrite_options
    # Stock Grappler leaves graphs of fewer than four nodes alone.
    rewrite.min_graph_nodes = -1
    traced = b""
    for position, optimizer in reversed(list(enumerate(rewrite.custom_optimizers))):
        if optimizer.name == OPTIMIZER:
            traced = optimizer.parameter_map[PARAMETER].s or traced
            del rewrite.custom_optimizers[position]
    optimizer = rewrite.custom_optimizers.add(name=OPTIMIZER)
    if not options.barrier:
        optimizer.parameter_map["client"].s = client.encode()
    if traced:
        optimizer.parameter_map[PARAMETER].s = traced
    for key, value in options.to_parameters().items():
        attr = optimizer.parameter_map[key]
        if isinstance(value, bool):
            attr.b = value
        elif isinstance(value, int):
            attr.i = value
        else:
            attr.s = value.encode()


def is_switched_off(config: Any) -> bool:
    """Whether the ConfigProto keeps Grappler's meta optimizer, and with it tfsched's pass, from running."""
    return bool(config.graph_options.rewrite_options.disable_meta_optimizer)


def optimizers(config: Any) -> list[rewriter_config_pb2.RewriterConfig.CustomGraphOptimizer]:
    """The tfsched entries of a ConfigProto."""
    return [one for one in config.graph_options.rewrite_options.custom_optimizers if one.name == OPTIMIZER]
