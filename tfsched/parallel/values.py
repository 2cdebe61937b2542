"""Collectives as users call them: values of all workers are combined, joined or copied."""

from __future__ import annotations

import enum
import functools
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import record

from tfsched.errors import TfschedError
from tfsched.parallel import collectives
from tfsched.parallel.membership import Member, member

# Functions that users call are not for AutoGraph: it would rewrite all that is behind them.

# In eager mode fewer elements are reduced by stock's op: tfsched's pass would leave them to it, and tracing costs time.
_FEW = 64
# Variables of a type are broadcast together, in packs of about so many bytes.
_PACK_BYTES = 64 << 20


class ReduceOp(enum.Enum):
    """How an all-reduce combines the values of all workers, element by element."""

    AVERAGE = ("Add", "Div")
    SUM = ("Add", "Id")
    MIN = ("Min", "Id")
    MAX = ("Max", "Id")
    PRODUCT = ("Mul", "Id")


Average, Sum, Min, Max, Product = ReduceOp


@tf.autograph.experimental.do_not_convert
def allreduce(tensor: Any, op: ReduceOp = Average) -> Any:
    """Combines a tensor of all workers.

    Args:
      tensor: of any shape, the same on all workers; of float16, bfloat16, float32, float64, int32 or int64.
      op: Average, Sum, Min, Max or Product. Average needs a floating point type.

    Returns:
      A tensor of the same shape and type, with the same bits on all workers. Sums and averages have gradients: those of all
      workers, combined in the same way.

    Raises:
      TfschedError: the type or op is another one, or it is called without init or where it cannot work.
    """
    return grouped_allreduce([tensor], op)[0]


@tf.autograph.experimental.do_not_convert
def grouped_allreduce(tensors: Sequence[Any], op: ReduceOp = Average) -> list[Any]:
    """:func:`allreduce` of several tensors together, which costs less than one after another.

    Args:
      tensors: in an order that is the same on all workers.
      op: as there.

    Returns:
      The combined tensors in the same order.

    Raises:
      TfschedError: as there.
    """
    me = member()
    given = [tf.convert_to_tensor(tensor) for tensor in tensors]
    _check(given, op)
    if me.size == 1 or not given:
        return [tf.identity(tensor) for tensor in given]
    collectives.refuse("an all-reduce")

    @tf.custom_gradient
    def combined(*inputs: Any) -> Any:
        def gradient(*outputs: Any) -> Any:
            if op not in (Average, Sum):
                raise TfschedError(f"an all-reduce by {op.name} has no gradient; use Average or Sum, or tf.stop_gradient.")
            return grouped_allreduce(outputs, op)

        with record.stop_recording():
            return tuple(_reduced(me, inputs, op)), gradient

    return list(combined(*given))


def _check(tensors: Sequence[Any], op: Any) -> None:
    if not isinstance(op, ReduceOp):
        raise TfschedError(f"an all-reduce got op {op!r}; give Average, Sum, Min, Max or Product of tfsched.parallel.")
    for tensor in tensors:
        collectives.reducible(tensor, "an all-reduce")
        if op is Average and not tensor.dtype.is_floating:
            raise TfschedError(f"an all-reduce got {tensor.dtype.name} to average; cast it to floats, or use Sum.")


def _reduced(me: Member, tensors: Sequence[Any], op: ReduceOp) -> list[Any]:
    many = tf.executing_eagerly() and sum(int(tf.size(tensor)) for tensor in tensors) >= _FEW
    return _function(op)(list(tensors)) if many else collectives.reduce_packed(me, tensors, *op.value)


@functools.cache
def _function(op: ReduceOp) -> Any:
    """The same in a function, where tfsched's pass sees the pack."""
    made = tf.function(lambda tensors: collectives.reduce_packed(member(), tensors, *op.value), autograph=False)
    made._omit_frequent_tracing_warning = True  # a program may well reduce tensors of many shapes
    return made


@tf.autograph.experimental.do_not_convert
def allgather(tensor: Any) -> Any:
    """Joins a tensor of all workers along its first dimension, in the order of the ranks.

    Args:
      tensor: [rows, ...]; rows may differ from worker to worker, nothing else may. A scalar counts as [1]. Numbers of any
        type but complex128.

    Returns:
      The joined tensor [all rows, ...]. It has no gradient.

    Raises:
      TfschedError: the type is another one, workers' tensors do not fit (in a function: InvalidArgumentError), or it is
        called without init or where it cannot work.
    """
    me = member()
    given = tf.convert_to_tensor(tensor)
    collectives.wire(given, "allgather")
    if me.size == 1:
        return tf.reshape(given, [1]) if given.shape.rank == 0 else tf.identity(given)
    collectives.refuse("allgather")
    return collectives.gather(me, given, "allgather")


@tf.autograph.experimental.do_not_convert
def broadcast(tensor: Any, root_rank: int = 0) -> Any:
    """The tensor of one worker, on all.

    Args:
      tensor: of the same type and shape on all workers. Numbers of any type but complex128.
      root_rank: whose.

    Returns:
      The root's tensor. It has no gradient.

    Raises:
      TfschedError: there is no such rank, the type is another one, workers' tensors do not fit (in a function:
        InvalidArgumentError), or it is called without init or where it cannot work.
    """
    me = member()
    given = tf.convert_to_tensor(tensor)
    collectives.wire(given, "broadcast")
    _check_root(me, root_rank)
    if me.size == 1:
        return tf.identity(given)
    collectives.refuse("broadcast")
    return collectives.spread(me, given, root_rank, "broadcast")


@tf.autograph.experimental.do_not_convert
def broadcast_variables(variables: Sequence[Any], root_rank: int = 0) -> None:
    """Gives variables the values that they have on one worker.

    Args:
      variables: of TensorFlow or Keras; of the same types and shapes, in the same order, on all workers.
      root_rank: whose values.

    Raises:
      TfschedError: as :func:`broadcast`.
    """
    me = member()
    _check_root(me, root_rank)
    variables = list(variables)
    if me.size == 1 or not variables:
        return
    collectives.refuse("broadcast_variables")
    values = [tf.convert_to_tensor(variable) for variable in variables]
    for value in values:
        collectives.wire(value, "broadcast_variables")
    for places in _packs(values):
        flat = tf.concat([tf.reshape(values[place], [-1]) for place in places], 0)
        told = collectives.spread(me, flat, root_rank, "broadcast_variables")
        parts = tf.split(told, [values[place].shape.num_elements() for place in places])
        for place, part in zip(places, parts, strict=True):
            variables[place].assign(tf.reshape(part, values[place].shape))


def _packs(values: Sequence[Any]) -> list[list[int]]:
    """Numbers of the values that are broadcast together."""
    packs: list[list[int]] = []
    open_packs: dict[Any, tuple[list[int], int]] = {}
    for place, value in enumerate(values):
        pack, taken = open_packs.get(value.dtype, ([], _PACK_BYTES))
        if taken >= _PACK_BYTES:
            pack, taken = [], 0
            packs.append(pack)
        pack.append(place)
        open_packs[value.dtype] = (pack, taken + value.shape.num_elements() * value.dtype.size)
    return packs


@tf.autograph.experimental.do_not_convert
def broadcast_object(obj: Any, root_rank: int = 0) -> Any:
    """An object of one worker, on all. In eager mode only.

    Args:
      obj: what pickle takes; only the root's counts.
      root_rank: whose.

    Returns:
      A copy of the root's object; on the root itself the object.

    Raises:
      TfschedError: there is no such rank, or it is called without init or in a function.
    """
    me = member()
    _check_root(me, root_rank)
    if not tf.executing_eagerly():
        raise TfschedError("broadcast_object is in a tf.function; call it in eager mode.")
    if me.size == 1:
        return obj
    data = np.frombuffer(pickle.dumps(obj), np.uint8) if me.rank == root_rank else np.zeros([0], np.uint8)
    length = int(broadcast(tf.constant(len(data), tf.int64), root_rank))
    words = np.zeros([-(-length // 4)], np.int32)  # four bytes a number
    words.view(np.uint8)[: len(data)] = data
    told = broadcast(tf.constant(words), root_rank).numpy()
    return obj if me.rank == root_rank else pickle.loads(told.tobytes()[:length])


@tf.autograph.experimental.do_not_convert
def barrier() -> None:
    """Waits until all workers have come here.

    Raises:
      TfschedError: without init, or where it cannot work.
    """
    me = member()
    if me.size > 1:
        collectives.refuse("barrier")
        collectives.reduce_packed(me, [tf.zeros([])], *Sum.value)


def _check_root(me: Member, root_rank: Any) -> None:
    if not isinstance(root_rank, int) or not 0 <= root_rank < me.size:
        raise TfschedError(f"root_rank is {root_rank!r}; there are {me.size} workers, counted from 0.")
