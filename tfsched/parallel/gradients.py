"""Gradients of all workers, combined: what the tape and the optimizers share, and the tape."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfsched.errors import TfschedError
from tfsched.parallel.membership import member
from tfsched.parallel.values import Average, ReduceOp, Sum, allgather, grouped_allreduce


class Compression:
    """As what dense gradients of more bytes are exchanged: half the bytes, fewer bits."""

    none = None
    fp16 = tf.float16
    bf16 = tf.bfloat16


@dataclasses.dataclass(frozen=True)
class Settings:
    """How gradients are combined; see :func:`DistributedOptimizer`."""

    op: ReduceOp = Average
    compression: Any = Compression.none
    sparse_as_dense: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.op, ReduceOp):
            raise TfschedError(f"op is {self.op!r}; give Average, Sum, Min, Max or Product of tfsched.parallel.")
        if self.compression not in (None, tf.float16, tf.bfloat16):
            raise TfschedError(f"compression is {self.compression!r}; give Compression.none, .fp16 or .bf16.")

    @tf.autograph.experimental.do_not_convert
    def combine(self, gradients: Sequence[Any]) -> list[Any]:
        """The gradients of all workers, in the same order; None stays None.

        Sparse ones are joined, as the gradient of all workers' batches would be.
        """
        if member().size == 1:
            return list(gradients)
        made = list(gradients)
        if self.sparse_as_dense:
            made = [tf.convert_to_tensor(one) if isinstance(one, tf.IndexedSlices) else one for one in made]
        dense = [place for place, one in enumerate(made) if one is not None and not isinstance(one, tf.IndexedSlices)]
        for place, one in zip(dense, self._dense([tf.convert_to_tensor(made[place]) for place in dense]), strict=True):
            made[place] = one
        return [self._sparse(one) if isinstance(one, tf.IndexedSlices) else one for one in made]

    def _dense(self, tensors: list[Any]) -> list[Any]:
        less = [
            tf.cast(one, self.compression) if self.compression is not None and one.dtype.size > 2 else one for one in tensors
        ]
        reduced = grouped_allreduce(less, self.op)
        return [tf.cast(one, tensor.dtype) for one, tensor in zip(reduced, tensors, strict=True)]

    def _sparse(self, slices: Any) -> Any:
        if self.op not in (Average, Sum):
            raise TfschedError(
                f"a sparse gradient cannot be combined by {self.op.name}; give Average or Sum, or sparse_as_dense=True."
            )
        values, indices = allgather(slices.values), allgather(slices.indices)
        if self.op is Average:
            values /= tf.cast(member().size, values.dtype)
        return tf.IndexedSlices(values, indices, slices.dense_shape)


class DistributedGradientTape:
    """A ``tf.GradientTape`` whose ``gradient`` combines those of all workers.

    Everything else is the tape's. Both ``with DistributedGradientTape(tf.GradientTape()) as tape:`` and a tape that has
    recorded before will do.

    Args:
      tape: the ``tf.GradientTape``.
      op: how gradients are combined.
      compression: ``Compression.fp16`` or ``.bf16`` exchanges 32 and 64 bit gradients as such.
      sparse_as_dense: sparse gradients (IndexedSlices) are made dense and all-reduced; otherwise their slices are gathered.

    Raises:
      TfschedError: an argument is wrong.
    """

    def __init__(
        self, tape: Any, op: ReduceOp = Average, compression: Any = Compression.none, sparse_as_dense: bool = False
    ):
        if not hasattr(tape, "gradient"):
            raise TfschedError(f"DistributedGradientTape got {tape!r}; give a tf.GradientTape.")
        self._tape = tape
        self._settings = Settings(op, compression, sparse_as_dense)

    def __enter__(self) -> DistributedGradientTape:
        self._tape.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._tape.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)

    @tf.autograph.experimental.do_not_convert
    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        """As the tape's, of all workers.

        Raises:
          TfschedError: without init, or where collectives cannot work.
        """
        found = self._tape.gradient(target, sources, *args, **kwargs)
        flat = tf.nest.flatten(found)
        return tf.nest.pack_sequence_as(found, self._settings.combine(flat))
