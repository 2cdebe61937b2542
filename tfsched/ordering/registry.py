"""The register of orderings: one name, one function, found by the command line and by plans."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from . import _checks
from ._checks import show
from .dag import Dag


class OrderingError(ValueError):
    """An ordering that is unknown, registered twice or cannot be loaded; one sentence."""


class Ordering(Protocol):
    """Gives every recv of a dag a priority (smaller is sooner, equal allowed).

    `times_us` (op name -> µs) replaces the dag's own times; `seed` serves the orderings that draw.
    """

    def __call__(self, dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0) -> dict[str, float]: ...


_F = TypeVar("_F", bound=Ordering)
_orderings: dict[str, Ordering] = {}
_plugins: dict[str, tuple[str, ...]] = {}


def register(name: str) -> Callable[[_F], _F]:
    """Return a decorator that registers an ordering function as `name` and leaves it unchanged.

    Registering the same function again is harmless. Raises OrderingError for a name already taken
    by another function, or one that is not letters, digits, "_", "-" and ".".
    """
    if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+", name):
        raise OrderingError(f'an ordering cannot be called {show(name)}; use letters, digits, "_", "-" and "."')

    def decorate(function: _F) -> _F:
        if not callable(function):
            raise OrderingError(f"ordering {name!r} is {show(function)}; register a function")
        if _orderings.get(name, function) is not function:
            raise OrderingError(f"ordering {name!r} is already registered; choose another name")
        _orderings[name] = function
        return function

    return decorate


def get(name: str) -> Ordering:
    """Return the ordering registered as `name`; OrderingError lists the known ones if none is."""
    try:
        return _orderings[name]
    except (KeyError, TypeError):
        known = ", ".join(names())
        raise OrderingError(f"ordering {show(name)} is unknown; known orderings: {known}") from None


def names() -> list[str]:
    """Return the names of all registered orderings, sorted."""
    return sorted(_orderings)


def load_plugin(path: str | os.PathLike[str]) -> list[str]:
    """Run a user's Python file and return the names of the orderings it registers.

    The same file is run once per process. A file that fails leaves nothing registered.
    Raises OrderingError if it cannot be read, raises an exception, or registers nothing.
    """
    text = os.fspath(path)
    real = os.path.realpath(text)
    if real in _plugins:
        return list(_plugins[real])
    if not os.path.isfile(real):
        raise OrderingError(f"the plugin {text!r} does not exist; give the path of a .py file")
    if not real.endswith(".py"):
        raise OrderingError(f"the plugin {text!r} is not a .py file; give the path of one")
    module_name = f"tfsched_plugin_{len(_plugins)}_{os.path.basename(real)[:-3]}"
    spec = importlib.util.spec_from_file_location(module_name, real)
    if spec is None or spec.loader is None:
        raise OrderingError(f"the plugin {text!r} cannot be imported; give the path of a .py file")
    module = importlib.util.module_from_spec(spec)
    before = dict(_orderings)
    # Dataclasses and pickles of the plugin look their module up by name.
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
        added = tuple(sorted(set(_orderings) - set(before)))
        if not added:
            raise OrderingError(
                f'the plugin {text!r} registers no ordering; decorate its function with @tfsched.ordering.register("name")'
            )
    except BaseException as exc:
        _orderings.clear()
        _orderings.update(before)
        del sys.modules[module_name]
        if isinstance(exc, (KeyboardInterrupt, OrderingError)):
            raise
        message = " ".join(str(exc).split())
        raise OrderingError(f"the plugin {text!r} failed with {type(exc).__name__}: {message}; correct the file") from exc
    for name in added:
        _orderings[name] = _guarded(name, _orderings[name])
    _plugins[real] = added
    return list(added)


def _guarded(name: str, function: Ordering) -> Ordering:
    """A plugin's ordering whose mistakes are one sentence, wherever it is called from."""

    @functools.wraps(function)
    def guarded(dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0) -> dict[str, float]:
        try:
            priorities = function(dag, times_us, seed=seed)
        except OrderingError:
            raise
        except Exception as exc:
            message = " ".join(str(exc).split())
            raise OrderingError(
                f"ordering {name!r} failed with {type(exc).__name__}: {message}; correct the plugin"
            ) from exc
        if not isinstance(priorities, Mapping):
            raise OrderingError(f"ordering {name!r} returned {show(priorities)}; return a dict")
        for op in dag.recvs:
            if op.name not in priorities:
                raise OrderingError(f"ordering {name!r} gave no priority to recv op {show(op.name)}")
            what = f"the priority that ordering {name!r} gave to {show(op.name)}"
            _checks.number(priorities[op.name], what, OrderingError, signed=True)
        return priorities

    return guarded
