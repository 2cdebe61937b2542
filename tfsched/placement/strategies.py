"""Balanced servers for ParameterServerStrategy: in place of its round robin."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfsched._log import log
from tfsched.placement.balance import SHARD_BYTES, Loads
from tfsched.placement.sessions import shard_partitioner
from tfsched.placement.sharding import once

# The strategy's methods through which each variable goes, and each variable and each shard, and what it places the next by.
_CREATE_WHOLE, _CREATE, _COUNT = "_create_variable", "_create_variable_round_robin", "_variable_count"


def balanced_strategy(cluster_resolver: Any, shard_bytes: int | None = SHARD_BYTES) -> Any:
    """A ``tf.distribute.ParameterServerStrategy`` whose servers all carry the same bytes.

    Variables above `shard_bytes` become a ``ShardedVariable`` with a shard on each server, as with
    ``variable_partitioner``. Each variable and shard goes to the server that holds the fewest bytes so far. Slots of
    optimizers stay with their variables. Checkpoints are stock TensorFlow's, and any placement can read them.

    Initial values are those of whole variables. With ``variable_partitioner`` alone each shard is drawn by itself, and
    initializers of Keras that scale by the number of inputs (Glorot, He, LeCun) take that of the shard.

    Args:
      cluster_resolver: as for the strategy, :func:`tfsched.cluster_resolver` say.
      shard_bytes: variables of at most so many bytes stay whole; None cuts none.

    Returns:
      The strategy.

    Raises:
      TfschedError: no server, or `shard_bytes` below 1.
    """
    servers = len(cluster_resolver.cluster_spec().as_dict().get("ps", ()))
    loads = Loads(servers)
    partitioner = None if shard_bytes is None else shard_partitioner(servers, shard_bytes)
    strategy = tf.distribute.ParameterServerStrategy(cluster_resolver, variable_partitioner=partitioner)
    _place_by(strategy.extended, loads)
    if partitioner is not None:
        _draw_whole(strategy.extended, partitioner)
    return strategy


def _place_by(extended: Any, loads: Loads) -> None:
    create: Callable[..., Any] | None = getattr(extended, _CREATE, None)
    if create is None or not hasattr(extended, _COUNT):
        log.warning("variables go in turn, for this TensorFlow's ParameterServerStrategy has no %s.", _CREATE)
        return

    def create_on_the_emptiest(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        server = loads.emptiest()
        setattr(extended, _COUNT, server)
        variable = create(next_creator, **kwargs)
        shape = variable.shape
        if shape.is_fully_defined():
            loads.add(server, math.prod(shape.as_list()) * variable.dtype.size)
        return variable

    setattr(extended, _CREATE, create_on_the_emptiest)


def _draw_whole(extended: Any, partitioner: Callable[..., list[int]]) -> None:
    """Has shards take their rows of the whole variable's initial value."""
    create: Callable[..., Any] | None = getattr(extended, _CREATE_WHOLE, None)
    if create is None:
        log.warning("shards are drawn one by one, for this TensorFlow's ParameterServerStrategy has no %s.", _CREATE_WHOLE)
        return

    def create_from_the_whole(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        value, shape, dtype = (kwargs.get(name) for name in ("initial_value", "shape", "dtype"))
        cut = shape is not None and dtype is not None and max([1, *partitioner(shape, dtype)]) > 1
        # What restores from a checkpoint reads only the shard.
        if cut and callable(value) and "shard_info" not in inspect.signature(value).parameters:
            # It refuses the arguments that ask for a part. TensorFlow then takes the rows from the whole.
            kwargs["initial_value"] = once(value)
        return create(next_creator, **kwargs)

    setattr(extended, _CREATE_WHOLE, create_from_the_whole)
