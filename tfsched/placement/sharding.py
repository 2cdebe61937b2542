"""Shards for variables of graphs that no partitioner reaches, as those of Keras layers."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfsched.placement.balance import SHARD_BYTES
from tfsched.placement.sessions import is_colocated, shard_partitioner

_v1 = tf.compat.v1
# What a partitioner has cut is called so.
_SHARD = re.compile(r"/part_\d+$")


class _Sharded(tf.__internal__.distribute.ShardedVariable):
    """With what `tf.compat.v1.get_variable` asks of a variable that it finds again."""

    def get_shape(self) -> tf.TensorShape:
        """As of other variables."""
        return self.shape


@contextlib.contextmanager
def sharded_variables(servers: int, shard_bytes: int = SHARD_BYTES) -> Iterator[None]:
    """Have variables of a ``tf.compat.v1`` graph cut into shards while they are made, those of Keras layers too.

    A variable of more than `shard_bytes` becomes a ``ShardedVariable`` with a shard for each server, cut along the first
    axis. What reads it gets the shards joined. Collections, ``tf_keras`` layers and models, optimizers and
    ``tf.compat.v1.train.Saver`` have the shards; a checkpoint has the whole variable under its own name.

    ::

        w [8192, 4096]  ──►  w/part_0 [4096, 4096]   on the first server
                             w/part_1 [4096, 4096]   on the second one

    Whole stay: variables whose shape is not known when they are made, shards of a partitioner, slots of optimizers, which
    are as large as their shard, and variables with a constraint, because a constraint may need all rows.

    Args:
      servers: how many there are.
      shard_bytes: variables of at most so many bytes stay whole.

    Raises:
      TfschedError: no server, or `shard_bytes` below 1.
    """
    partitioner = shard_partitioner(servers, shard_bytes)

    def create(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        value, name = kwargs.get("initial_value"), kwargs.get("name") or "Variable"
        shape = _shape_of(value, kwargs.get("shape"))
        dtype = kwargs.get("dtype") or getattr(value, "dtype", None)
        whole = kwargs.get("constraint") is not None or _SHARD.search(name) or is_colocated(_v1.get_default_graph())
        if whole or shape is None or dtype is None:
            return next_creator(**kwargs)
        shards = max([1, *partitioner(shape, dtype)])
        if shards == 1:
            return next_creator(**kwargs)
        return _sharded(next_creator, kwargs, name, shape, shards)

    with _v1.variable_creator_scope(create):
        yield


def _shape_of(value: Any, stated: Any) -> tf.TensorShape | None:
    """The variable's shape, if it is known without making its value."""
    if stated is None and not callable(value):
        stated = getattr(value, "shape", None)
    if stated is None:
        return None
    shape = tf.TensorShape(stated)
    return shape if shape.is_fully_defined() and shape.rank else None


def _sharded(
    next_creator: Callable[..., Any], kwargs: dict[str, Any], name: str, shape: tf.TensorShape, shards: int
) -> tf.Variable:
    """`shards` variables of about as many rows each, in place of one."""
    rest = shape.as_list()[1:]
    # As TensorFlow's own partitioners cut: the first shards have a row more where they do not come out even.
    rows, more = divmod(shape[0], shards)
    bounds = [rows * number + min(number, more) for number in range(shards + 1)]
    value = kwargs["initial_value"]
    if callable(value):
        # The whole value is made once: random ones are those that the variable would have had, with the scale of its shape.
        value = once(value)
    parts = []
    for number, (begin, end) in enumerate(itertools.pairwise(bounds)):
        own = {"name": f"{name}/part_{number}", "shape": tf.TensorShape([end - begin, *rest])}
        parts.append(next_creator(**{**kwargs, **own, "initial_value": _rows(value, begin, end)}))
    whole = re.sub(r"/part_0(_\d+)?$", r"\1", parts[0].op.name)
    # ShardedVariable makes a variable of the whole shape for SavedModels, which nothing initializes. It is in another graph,
    # so that no initializer, saver or server meets it.
    with tf.Graph().as_default():
        variable = _Sharded(parts, name=whole)
    for part, begin in zip(parts, bounds, strict=False):
        # What savers name the shard by. TensorFlow's own partitioners tell them so, too; slots of optimizers take it over.
        offset = [begin, *[0] * len(rest)]
        part._set_save_slice_info(tf.Variable.SaveSliceInfo(whole, shape.as_list(), offset, part.shape.as_list()))
    return variable


def once(value: Callable[[], Any]) -> Callable[[], Any]:
    """`value`, made once in each graph that asks for it."""

    @functools.cache
    def made(graph: tf.Graph | None) -> Any:
        del graph  # the key
        return value()

    return lambda: made(None if tf.executing_eagerly() else _v1.get_default_graph())


def _rows(value: Any, begin: int, end: int) -> Any:
    """The initial value of the rows from `begin` to `end`."""
    return (lambda: value()[begin:end]) if callable(value) else value[begin:end]
