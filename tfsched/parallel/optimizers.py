"""Optimizers of Keras 3, tf_keras and TensorFlow that update with the gradients of all workers. Imports no Keras."""

from __future__ import annotations

import functools
import sys
from typing import Any

from tfsched.errors import TfschedError
from tfsched.parallel.gradients import Compression, Settings
from tfsched.parallel.values import Average, ReduceOp


def DistributedOptimizer(
    optimizer: Any, op: ReduceOp = Average, compression: Any = Compression.none, sparse_as_dense: bool = False
) -> Any:
    """Has an optimizer combine the gradients of all workers before each update.

    Args:
      optimizer: of Keras 3 on the TensorFlow backend, of tf_keras or of ``tf.compat.v1.train``. It is changed itself, and
        keeps its state.
      op: how gradients are combined.
      compression: ``Compression.fp16`` or ``.bf16`` exchanges 32 and 64 bit gradients as such.
      sparse_as_dense: sparse gradients (IndexedSlices) are made dense and all-reduced; otherwise their slices are gathered.

    Returns:
      The optimizer. It is saved with a model as what it was before.

    Raises:
      TfschedError: it is no optimizer, it is distributed already, its Keras has another backend, or an argument is wrong.
    """
    settings = Settings(op, compression, sparse_as_dense)
    if isinstance(getattr(optimizer, "tfsched_settings", None), Settings):
        raise TfschedError(f"{type(optimizer).__name__} is a DistributedOptimizer already; wrap an optimizer once.")
    keras3 = hasattr(optimizer, "apply") and hasattr(optimizer, "stateless_apply")
    if not keras3 and not hasattr(optimizer, "apply_gradients"):
        raise TfschedError(f"DistributedOptimizer got {optimizer!r}; give an optimizer of Keras or TensorFlow.")
    backend = sys.modules["keras"].backend.backend() if keras3 and "keras" in sys.modules else "tensorflow"
    if backend != "tensorflow":
        raise TfschedError(
            f"Keras runs on {backend!r}, and tfsched on TensorFlow only; set KERAS_BACKEND=tensorflow before Keras is "
            "imported."
        )
    # Past the __setattr__ of Keras, which tracks what it is given.
    base: Any = type(optimizer)
    object.__setattr__(optimizer, "__class__", _distributed(base, keras3))
    object.__setattr__(optimizer, "tfsched_settings", settings)
    return optimizer


@functools.cache
def _distributed(base: Any, keras3: bool) -> Any:
    """The class of distributed optimizers of class ``base``. It bears its name, by which models are saved and loaded."""

    class Of3(base):
        tfsched_settings = Settings()

        def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
            _refuse_loss_scaling(self)
            return super().apply(self.tfsched_settings.combine(grads), trainable_variables)

    class Of2(base):
        tfsched_settings = Settings()

        def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
            _refuse_loss_scaling(self)
            pairs = list(grads_and_vars)
            combined = self.tfsched_settings.combine([gradient for gradient, _ in pairs])
            pairs = [(gradient, variable) for gradient, (_, variable) in zip(combined, pairs, strict=True)]
            return super().apply_gradients(pairs, *args, **kwargs)

    made: Any = Of3 if keras3 else Of2
    made.__name__, made.__qualname__, made.__doc__ = base.__name__, base.__qualname__, base.__doc__
    made.__module__ = base.__module__
    if keras3 and getattr(sys.modules["keras"].optimizers, base.__name__, None) is base:
        made.__module__ = "keras.optimizers"  # by which Keras finds it again, in every version
    return made


def _refuse_loss_scaling(optimizer: Any) -> None:
    """A LossScaleOptimizer leaves an update out where gradients are infinite, which workers would find each by itself."""
    frame = sys._getframe(2)
    while frame is not None:
        if getattr(frame.f_locals.get("self"), "inner_optimizer", None) is optimizer:
            raise TfschedError(
                "a LossScaleOptimizer contains a DistributedOptimizer, and workers would leave out different updates; wrap "
                "the other way round: DistributedOptimizer(LossScaleOptimizer(optimizer))."
            )
        frame = frame.f_back  # type: ignore[assignment]
