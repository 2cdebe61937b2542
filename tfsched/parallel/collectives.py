"""Stock collectives of all workers, on tensors of any type and shape, in eager mode and in tf.function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import collective_ops, control_flow_util

from tfsched.errors import TfschedError
from tfsched.parallel.membership import GROUP_KEY, Member

# Dimensions that a tensor may have; the header of one that is gathered or broadcast has a fixed length.
_DIMENSIONS = 8
_REDUCED = {tf.bfloat16, tf.float16, tf.float32, tf.float64, tf.int32, tf.int64}


class _Wire(NamedTuple):
    """How a tensor crosses whose type collectives do not know, bit for bit."""

    there: Callable[[Any], Any]
    back: Callable[[Any], Any]


def _cast(other: Any, own: Any) -> _Wire:
    return _Wire(lambda tensor: tf.cast(tensor, other), lambda tensor: tf.cast(tensor, own))


def _bits(other: Any, own: Any) -> _Wire:
    return _Wire(lambda tensor: tf.bitcast(tensor, other), lambda tensor: tf.bitcast(tensor, own))


_AS_IT_IS = _Wire(lambda tensor: tensor, lambda tensor: tensor)
_WIRES = {
    **dict.fromkeys((tf.float16, tf.float32, tf.float64, tf.int32, tf.int64), _AS_IT_IS),
    tf.bfloat16: _cast(tf.float32, tf.bfloat16),
    **{one: _cast(tf.int32, one) for one in (tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16)},
    tf.uint32: _bits(tf.int32, tf.uint32),
    tf.uint64: _bits(tf.int64, tf.uint64),
    tf.complex64: _bits(tf.int64, tf.complex64),
}


def refuse(what: str) -> None:
    """Says so where no collective can be built.

    Raises:
      TfschedError: within a function that XLA compiles, or in a graph of tf.compat.v1.
    """
    graph = ops.get_default_graph()
    if control_flow_util.GraphOrParentsInXlaContext(graph):
        raise TfschedError(
            f"{what} is in a function with jit_compile=True, and XLA cannot compile what waits for other workers; give "
            "jit_compile=False to tf.function, or to the model's compile()."
        )
    if not tf.executing_eagerly() and not graph.building_function:
        raise TfschedError(f"{what} is in a graph of tf.compat.v1; call it in eager mode or in a tf.function.")


def wire(tensor: Any, what: str) -> _Wire:
    """How ``tensor`` crosses.

    Raises:
      TfschedError: it cannot.
    """
    found = _WIRES.get(tensor.dtype)
    if found is None:
        raise TfschedError(f"{what} got a tensor of type {tensor.dtype.name}; give numbers, or use broadcast_object.")
    return found


def reducible(tensor: Any, what: str) -> None:
    """Looks whether ``tensor`` can be all-reduced.

    Raises:
      TfschedError: it cannot.
    """
    if tensor.dtype not in _REDUCED:
        names = ", ".join(sorted(one.name for one in _REDUCED))
        raise TfschedError(f"{what} got a tensor of type {tensor.dtype.name}; cast it to one of {names}.")


def reduce_packed(member: Member, tensors: Sequence[Any], merge: str, final: str) -> list[Any]:
    """All-reduces tensors, those of a type in one pack, which is what tfsched's pass takes apart again.

    Args:
      member: this process.
      tensors: of types that can be reduced, in an order that is the same on all workers.
      merge: "Add", "Min", "Max" or "Mul".
      final: "Id", or "Div" by the number of workers.
    """
    reduced: list[Any] = [None] * len(tensors)
    with tf.device(member.device):
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            places = [place for place, tensor in enumerate(tensors) if tensor.dtype == dtype]
            results = _reduce_pack(member, [tensors[place] for place in places], merge, final)
            for place, result in zip(places, results, strict=True):
                reduced[place] = result
    return reduced


def _reduce_pack(member: Member, tensors: list[Any], merge: str, final: str) -> list[Any]:
    flat = [tf.reshape(tensor, [-1]) for tensor in tensors]
    pack = flat[0] if len(flat) == 1 else tf.concat(flat, 0)
    result = collective_ops.all_reduce_v2(
        pack,
        member.size,
        GROUP_KEY,
        # Of the gradients the last layer's is there first, and agreeing on the pack begins with the key.
        member.next_key(tensors[-1]),
        merge_op=merge,
        final_op=final,
        ordering_token=member.token.handle,
    )
    if len(flat) == 1:
        parts = [result]
    else:
        # The pass wants to see the sizes.
        static = [tensor.shape.num_elements() for tensor in tensors]
        sizes = static if None not in static else tf.stack([tf.size(one) for one in flat])
        parts = tf.split(result, sizes, num=len(flat))
    made = []
    for part, tensor in zip(parts, tensors, strict=True):
        known = tensor.shape.is_fully_defined()
        one = tf.reshape(part, tensor.shape if known else tf.shape(tensor))
        one.set_shape(tensor.shape)
        made.append(one)
    return made


def gather_first(member: Member, tensor: Any) -> Any:
    """Stacks tensors of one shape, one of each worker, in the order of their ranks: [size, ...]."""
    with tf.device(member.device):
        row = tf.concat([tf.reshape(tf.constant(member.rank, tensor.dtype), [1]), tf.reshape(tensor, [-1])], 0)
        rows = collective_ops.all_gather_v2(
            tf.expand_dims(row, 0), member.size, GROUP_KEY, member.next_key(tensor), ordering_token=member.token.handle
        )
        rows = tf.reshape(rows, [member.size, -1])
        rows = tf.gather(rows, tf.argsort(rows[:, 0], stable=True))[:, 1:]
        return tf.reshape(rows, tf.concat([[member.size], tf.shape(tensor)], 0))


def headers(member: Member, tensor: Any, same_rows: bool, what: str) -> Any:
    """What each worker is about to give, so that nobody waits for tensors that do not fit.

    Args:
      member: this process.
      tensor: what it gives.
      same_rows: whether the first dimensions have to be equal.
      what: names the caller, in errors.

    Returns:
      The shapes of all workers' tensors, [size, 8], padded with zeros.

    Raises:
      TfschedError, or InvalidArgumentError in a function: types, or dimensions, differ.
    """
    dimensions = tensor.shape.rank
    if dimensions is None or dimensions > _DIMENSIONS:
        raise TfschedError(f"{what} got a tensor of shape {tensor.shape}; give at most {_DIMENSIONS} dimensions.")
    shape = tf.pad(tf.shape(tensor, tf.int64), [[0, _DIMENSIONS - dimensions]])
    mine = tf.concat([tf.constant([tensor.dtype.as_datatype_enum, dimensions], tf.int64), shape], 0)
    told = gather_first(member, mine)
    compared = told if same_rows or dimensions == 0 else tf.concat([told[:, :2], told[:, 3:]], 1)
    text = f"tfsched: {what} got tensors of different types or shapes on different workers; give all the same"
    text += "." if same_rows else " but for the first dimension."
    if tf.executing_eagerly():
        if not bool(tf.reduce_all(compared == compared[:1])):
            seen = [
                f"{tf.as_dtype(int(row[0])).name}{[int(one) for one in row[2 : 2 + int(row[1])]]} on worker {number}"
                for number, row in enumerate(np.asarray(told))
            ]
            raise TfschedError(f"{text[9:-1]}: {', '.join(seen)}.")
        return told[:, 2:]
    with tf.control_dependencies([tf.debugging.assert_equal(compared, compared[:1], message=text)]):
        return tf.identity(told[:, 2:])


def gather(member: Member, tensor: Any, what: str) -> Any:
    """Joins all workers' tensors along their first dimension, in the order of the ranks."""
    if tensor.shape.rank == 0:
        tensor = tf.reshape(tensor, [1])
    way = wire(tensor, what)
    with tf.device(member.device):
        shapes = headers(member, tensor, False, what)[:, : tensor.shape.rank]
        counts = tf.cast(tf.reduce_prod(shapes, 1), tf.int32)
        # Stock gathers tensors of one size only, and none that are empty.
        longest = tf.maximum(tf.reduce_max(counts), 1)
        flat = tf.reshape(way.there(tensor), [-1])
        rows = gather_first(member, tf.pad(flat, [[0, longest - tf.size(flat)]]))
        parts = [tf.reshape(rows[one, : counts[one]], shapes[one]) for one in range(member.size)]
        whole = way.back(tf.concat(parts, 0))
    whole.set_shape([None, *tensor.shape[1:]])
    return whole


def spread(member: Member, tensor: Any, root: int, what: str) -> Any:
    """The tensor of worker ``root``, on all workers; all have to give one of the same type and shape."""
    way = wire(tensor, what)
    with tf.device(member.device):
        fits = headers(member, tensor, True, what)
        if tensor.shape.num_elements() == 0:
            return tensor
        sent, key = way.there(tensor), member.next_key(fits)
        if member.rank == root:
            given = collective_ops.broadcast_send_v2(sent, member.size, GROUP_KEY, key)
        else:
            given = collective_ops.broadcast_recv_v2(tf.shape(sent), sent.dtype, member.size, GROUP_KEY, key)
        whole = way.back(given)
    whole.set_shape(tensor.shape)
    return whole
