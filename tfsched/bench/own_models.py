"""A user's own model behind `--model FILE.py:FUNCTION`: a function of a Keras library that returns a Keras model."""

from __future__ import annotations

import functools
import importlib.util
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from tfsched.bench.errors import BenchError

FORM = "FILE.py:FUNCTION"


def is_own(name: str) -> bool:
    """Whether the name of a model means a file of the user's."""
    path, colon, _ = name.rpartition(":")
    return name.endswith(".py") or (bool(colon) and path.endswith(".py"))


@functools.lru_cache(maxsize=8)
def load_builder(name: str) -> Callable[[Any], Any]:
    """The function that `FILE.py:FUNCTION` names, wrapped to say in one sentence what goes wrong in it.

    Args:
        name: the file, relative to the current directory, and the function.

    Raises:
        BenchError: there is no such file or function, or the file cannot be imported.
    """
    path, colon, function = name.rpartition(":")
    if not colon or not function.isidentifier():
        raise BenchError(f"model {name!r} does not name a function: give {FORM}, as in my_model.py:build")
    file = pathlib.Path(path).resolve()
    if not file.is_file():
        raise BenchError(f"model {name!r}: the file {path!r} does not exist: give the path of a Python file")
    spec = importlib.util.spec_from_file_location(f"tfsched_bench_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.append(str(file.parent))  # what it imports beside it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BenchError(f"model {name!r}: the file {path!r} cannot be imported ({_sentence(error)}): mend it") from error
    build = getattr(module, function, None)
    if not callable(build):
        names = (
            ", ".join(key for key, value in vars(module).items() if callable(value) and not key.startswith("_")) or "none"
        )
        raise BenchError(f"model {name!r}: {path!r} has no function {function!r}: name one of its functions ({names})")

    def layers(keras: Any) -> Any:
        try:
            model = build(keras)
        except Exception as error:
            raise BenchError(f"model {name!r}: {function}(keras) failed ({_sentence(error)}): mend it") from error
        _check(name, function, model)
        return model

    return layers


def shapes(name: str, keras: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of one sample and of its targets, from a model that is made in a graph and thrown away.

    Raises:
        BenchError: the model cannot be made, or the bench cannot train it.
    """
    import tensorflow as tf

    with tf.Graph().as_default():  # where variables have no values yet
        model = load_builder(name)(keras)
        return tuple(model.inputs[0].shape)[1:], tuple(model.outputs[0].shape)[1:-1]


def _check(name: str, function: str, model: Any) -> None:
    def refuse(what: str, remedy: str) -> BenchError:
        return BenchError(f"model {name!r}: {what}: {remedy}")

    if not hasattr(type(model), "trainable_variables") or not hasattr(model, "compile"):
        raise refuse(f"{function}(keras) returned {type(model).__name__}", "return a Keras model: keras.Sequential([...])")
    try:
        known = bool(model.inputs and model.outputs)
    except (AttributeError, ValueError):  # as Keras 3 says it
        known = False
    if not known:
        raise refuse("its inputs are not known", "begin it with keras.layers.Input((...))")
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        counts = f"it has {len(model.inputs)} inputs and {len(model.outputs)} outputs"
        raise refuse(counts, "return a model with one of each")
    sample, output = tuple(model.inputs[0].shape)[1:], tuple(model.outputs[0].shape)
    if any(size is None for size in sample):
        raise refuse(f"one sample has the shape {sample}", "give keras.layers.Input a shape without None")
    if len(output) < 2 or any(size is None for size in output[1:]):
        raise refuse(
            f"its output has the shape {output}", "end it with the logits of classes, of shape [batch, ..., classes]"
        )
    if not model.trainable_variables:
        raise refuse("it has no variable to train", "add a layer with weights")


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[0]}"
