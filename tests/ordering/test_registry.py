"""The register of orderings and the loading of a user's own."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator, Mapping

import pytest

from tfsched.ordering import Dag, OrderingError, get, load_plugin, names, register, registry

from .dags import figure_2a

PLUGIN = """
import tfsched.ordering

@tfsched.ordering.register("{name}")
def backwards(dag, times_us=None, *, seed=0):
    return {{op.name: -float(i) for i, op in enumerate(dag.recvs)}}
"""


@pytest.fixture(autouse=True)
def _fresh_register(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    modules = set(sys.modules)
    monkeypatch.setattr(registry, "_orderings", dict(registry._orderings))
    monkeypatch.setattr(registry, "_plugins", {})
    yield
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def _nothing(dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0) -> dict[str, float]:
    return {}


def test_built_in_names() -> None:
    assert {"fifo", "layer", "random", "tao", "tio"} <= set(names())
    assert names() == sorted(names())


def test_unknown_names_list_the_known_ones() -> None:
    known = ", ".join(names())
    with pytest.raises(OrderingError) as caught:
        get("tia")
    assert str(caught.value) == f"ordering 'tia' is unknown; known orderings: {known}"
    with pytest.raises(OrderingError, match=r"ordering \[\] is unknown"):
        get([])  # type: ignore[arg-type]


def test_register() -> None:
    assert register("mine")(_nothing) is _nothing
    register("mine")(_nothing)  # the same function again
    assert get("mine") is _nothing
    with pytest.raises(OrderingError, match="ordering 'mine' is already registered; choose"):
        register("mine")(lambda dag, times_us=None, *, seed=0: {})
    with pytest.raises(OrderingError, match="ordering 'tio' is already registered"):
        register("tio")(_nothing)
    with pytest.raises(OrderingError, match="an ordering cannot be called 'a b'; use letters"):
        register("a b")
    with pytest.raises(OrderingError, match="ordering 'three' is 3; register a function"):
        register("three")(3)  # type: ignore[type-var]


def test_load_plugin(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "my_order.py"
    path.write_text(PLUGIN.format(name="backwards"))
    assert load_plugin(path) == ["backwards"]
    assert get("backwards")(figure_2a()) == {"recv1": -0.0, "recv2": -1.0}
    assert load_plugin(str(path)) == ["backwards"]  # a second --plugin of the same file


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("none.py", None, "the plugin '.*none.py' does not exist; give the path of a .py file"),
        ("order.txt", "", "the plugin '.*order.txt' is not a .py file"),
        ("empty.py", "", "the plugin '.*empty.py' registers no ordering; decorate its function"),
        ("broken.py", "def", "the plugin '.*broken.py' failed with SyntaxError: .*; correct"),
        ("raises.py", "1 / 0", "failed with ZeroDivisionError: division by zero; correct the file"),
        ("exits.py", "raise SystemExit(3)", "failed with SystemExit: 3; correct the file"),
        ("taken.py", PLUGIN.format(name="tao"), "ordering 'tao' is already registered"),
        ("half.py", PLUGIN.format(name="half") + "\n1 / 0", "failed with ZeroDivisionError"),
    ],
)
def test_plugin_error_sentences(tmp_path: pathlib.Path, file: str, text: str | None, sentence: str) -> None:
    before = names()
    if text is not None:
        (tmp_path / file).write_text(text)
    with pytest.raises(OrderingError, match=sentence) as caught:
        load_plugin(tmp_path / file)
    assert "\n" not in str(caught.value)
    assert names() == before  # a plugin that fails leaves nothing behind
