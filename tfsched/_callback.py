"""What a callback for Model.fit has to have, for Keras 3 and tf_keras alike. Imports neither."""

from __future__ import annotations

from typing import Any


def _nothing(self: Any, *args: Any, **kwargs: Any) -> None:
    """A hook that is not used."""


# Both Kerases leave out hooks that are marked so.
_nothing._is_default = True  # type: ignore[attr-defined]


class Callback:
    """What both Kerases ask of a callback.

    Attributes:
      model: that is trained.
      params: what fit tells about itself ("epochs", "steps", "verbose").
    """

    model: Any = None
    params: dict[str, Any] | None = None

    on_epoch_begin = on_epoch_end = _nothing
    on_batch_begin = on_batch_end = _nothing
    on_train_begin = on_train_end = on_train_batch_begin = on_train_batch_end = _nothing
    on_test_begin = on_test_end = on_test_batch_begin = on_test_batch_end = _nothing
    on_predict_begin = on_predict_end = on_predict_batch_begin = on_predict_batch_end = _nothing

    def set_params(self, params: dict[str, Any] | None) -> None:
        """Called by fit."""
        self.params = params

    def set_model(self, model: Any) -> None:
        """Called by fit."""
        self.model = model

    def _implements_train_batch_hooks(self) -> bool:
        return self._has_own("on_train_batch_begin") or self._has_own("on_train_batch_end")

    def _implements_test_batch_hooks(self) -> bool:
        return self._has_own("on_test_batch_begin") or self._has_own("on_test_batch_end")

    def _implements_predict_batch_hooks(self) -> bool:
        return self._has_own("on_predict_batch_begin") or self._has_own("on_predict_batch_end")

    def _has_own(self, hook: str) -> bool:
        return not getattr(getattr(self, hook), "_is_default", False)
