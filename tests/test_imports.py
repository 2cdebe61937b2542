"""Holds the import rules: which part of tfsched may use which, in Python and in C++."""

from __future__ import annotations

import ast
import graphlib
import pathlib
import re
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tfsched"


class Rule(NamedTuple):
    """What a part may import besides the standard library and itself."""

    libraries: frozenset[str]
    parts: frozenset[str]


def rule(libraries: str = "", parts: str = "") -> Rule:
    return Rule(frozenset(libraries.split()), frozenset(parts.split()))


# A part is a directory or a file of tfsched/; "tfsched" is the public API, that is tfsched/__init__.py. The rules are the
# four layers: lower ones know nothing of higher ones. A new part has to be entered here, and its rule in its docstring.
PARTS = {
    "tfsched": rule(
        parts="errors version ordering _options server grappler ops tracing draining eager parallel placement control online"
    ),
    "errors": rule(),
    "version": rule(),
    "_rules": rule(),
    "graph_ops": rule(),
    "_callback": rule(),
    "_log": rule(),
    "_options": rule(parts="errors _rules"),
    "ordering": rule("numpy ortools", "_rules"),
    "ops": rule("tensorflow", "errors _log"),
    "grappler": rule("tensorflow", "ordering _options _rules _log graph_ops ops errors"),
    "control": rule("tensorflow google grpc prometheus_client", "errors version ops _callback _log"),
    "server": rule("tensorflow", "grappler ops errors control"),
    "eager": rule("tensorflow", "errors _options _log grappler ops server control"),
    "parallel": rule("tensorflow numpy", "errors _options _log eager ops server _callback"),  # and no Keras
    "placement": rule("tensorflow", "errors _log _rules"),
    "draining": rule("tensorflow", "grappler eager errors"),
    "tracing": rule("tensorflow", "ordering _options graph_ops ops errors grappler"),
    "simulator": rule("numpy yaml", "ordering _rules graph_ops errors"),
    "reports": rule("matplotlib numpy", "ordering errors"),
    "tuning": rule("numpy scipy skopt threadpoolctl matplotlib", "_rules errors"),  # it knows nothing of what it measures
    "online": rule("tensorflow", "errors _options _rules _log _callback tuning eager grappler control ops"),
    "bench": rule(
        "tensorflow tf_keras keras numpy matplotlib rich yaml",
        "tfsched errors version _options ordering ops parallel placement tracing simulator",
    ),
    "launch": rule("tensorflow wrapt", "tfsched _log _options errors eager grappler server control"),
    "commands": rule(
        "tensorflow tensorflow_io absl google numpy rich yaml",
        "tfsched errors version ordering _options _rules server grappler ops tracing bench simulator reports tuning control "
        "launch _log",
    ),
    "cli": rule("absl", "errors version commands"),
}

# The same for cc/. Only tests may use googletest and start processes, and the core knows no TensorFlow.
CC_TESTS = ("gtest", "sys", "unistd.h")
CC_PARTS = {
    "core": rule("pthread.h"),  # to know of forks
    "barrier": rule(parts="core"),
    "collective": rule(parts="core barrier"),
    "simulator": rule(parts="core collective"),
    # tsl and xla are parts of TensorFlow; POSIX: its sockets.
    "transport": rule("tensorflow tsl xla dirent.h netinet sys", "core barrier collective"),
    "tracing": rule("tensorflow tsl xla", "core transport"),
    "ops": rule("tensorflow", "core barrier collective transport tracing"),
    "grappler": rule("tensorflow", "core barrier transport tracing"),
}


def part_of(path: pathlib.Path) -> str:
    """The part that a Python file belongs to."""
    first = path.relative_to(PACKAGE).parts[0]
    return "tfsched" if first == "__init__.py" else first.removesuffix(".py")


def imports(text: str, package: str) -> Iterator[tuple[int, str]]:
    """(line, full name) of every import in `text`, wherever it stands; `package` is where relative ones start."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def broken(text: str, part: str, package: str, allowed: Rule) -> list[str]:
    """What `text` imports and `part` may not, as "line: name"."""
    result = []
    for line, name in imports(text, package):
        first, _, rest = name.partition(".")
        if first == "tfsched":
            target = rest.partition(".")[0]
            target = target if target in PARTS else "tfsched"
            fits = target == part or target in allowed.parts
        else:
            fits = first in sys.stdlib_module_names or first in allowed.libraries
        if not fits:
            result.append(f"{line}: {name}")
    return result


def broken_includes(text: str, part: str, allowed: Rule, is_test: bool) -> list[str]:
    """What a C++ file of `part` includes and may not."""
    result = []
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
        if not found:
            continue
        name = found[2]
        first, _, rest = name.partition("/")
        if first == "cc":
            target = rest.partition("/")[0]
            fits = target == part or target in allowed.parts
        elif "/" not in name and "." not in name and found[1] == "<":  # the C++ standard library
            fits = True
        else:
            fits = first in allowed.libraries or (is_test and first in CC_TESTS)
        if not fits:
            result.append(f"{number}: {name}")
    return result


def python_files() -> list[pathlib.Path]:
    return sorted(PACKAGE.rglob("*.py"))


def cc_files() -> list[pathlib.Path]:
    return sorted(path for path in (ROOT / "cc").rglob("*") if path.suffix in (".cc", ".h"))


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_python_imports(path: pathlib.Path) -> None:
    part = part_of(path)
    assert part in PARTS, f"{path.name} belongs to a new part; give it a rule in PARTS"
    package = ".".join(path.relative_to(ROOT).parent.parts)
    assert broken(path.read_text(), part, package, PARTS[part]) == []


@pytest.mark.parametrize("path", cc_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_cc_includes(path: pathlib.Path) -> None:
    part = path.relative_to(ROOT / "cc").parts[0]
    assert part in CC_PARTS, f"cc/{part} is a new part; give it a rule in CC_PARTS"
    assert broken_includes(path.read_text(), part, CC_PARTS[part], path.stem.endswith("_test")) == []


# Room of tfsched/grappler -> the rooms that it may use; the files on top may use them all.
ROOMS = {"reading": set(), "sending": {"reading"}, "collectives": {"reading"}, "barrier": {"reading", "sending"}}


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("grappler/*/*.py")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_rooms_of_the_rewrite(path: pathlib.Path) -> None:
    room = path.parent.name
    used = {name.split(".")[2] for _, name in imports(path.read_text(), "") if name.startswith("tfsched.grappler.")}
    assert used - {room} <= ROOMS[room]


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("bench/machines/*.py")), ids=lambda path: path.name)
def test_the_bench_s_machines_know_nothing_of_what_is_measured(path: pathlib.Path) -> None:
    named = [name.split(".") for _, name in imports(path.read_text(), "") if name.startswith("tfsched.bench.")]
    assert {parts[2] for parts in named} <= {"errors", "links", "machines", "pinning", "settings", "testbed"}


@pytest.mark.parametrize(
    "path",
    sorted(
        [*PACKAGE.glob("*/__init__.py"), *PACKAGE.glob("grappler/*/__init__.py"), PACKAGE / "bench/machines/__init__.py"]
    ),
    ids=lambda path: str(path.parent.relative_to(PACKAGE)),
)
def test_each_directory_says_what_it_may_import(path: pathlib.Path) -> None:
    said = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert "may import" in said.lower(), f"say in the docstring of {path.relative_to(ROOT)} what it may import"


def test_the_layers_have_no_cycle() -> None:
    done: set[str] = set()
    while len(done) < len(PARTS):
        ready = {part for part in PARTS if part not in done and PARTS[part].parts <= done}
        assert ready, f"these parts may import one another: {sorted(set(PARTS) - done)}"
        done |= ready


def imported_modules(sources: Mapping[str, tuple[str, str]]) -> dict[str, set[str]]:
    """Module -> the modules that it names in imports, inside functions too; `sources` is module -> (its package, its text).

    What Python runs besides, the `__init__.py` of each package above, does not count.
    """
    result: dict[str, set[str]] = {}
    for module, (package, text) in sources.items():
        result[module] = set()
        for _, name in imports(text, package):
            while name and name not in sources:  # of "from x import y" either may be the module
                name = name.rpartition(".")[0]
            if name:
                result[module].add(name)
    return result


def circle(sources: Mapping[str, tuple[str, str]]) -> list[str]:
    """One circle of modules that import one another; [] where there is none."""
    try:
        graphlib.TopologicalSorter(imported_modules(sources)).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_one_another_in_a_circle() -> None:
    sources = {}
    for path in python_files():
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        sources[name] = (".".join(path.relative_to(ROOT).parent.parts), path.read_text())
    assert circle(sources) == []


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("from tfsched.b import x", "def f():\n    from tfsched import a", True),
        ("from . import b", "from .a import x", True),
        ("import tfsched.a", "", True),  # itself
        ("import tfsched.b, numpy", "from tfsched import errors", False),
    ],
)
def test_the_rule_of_circles_sees(one: str, other: str, found: bool) -> None:
    sources = {"tfsched": ("tfsched", ""), "tfsched.a": ("tfsched", one), "tfsched.b": ("tfsched", other)}
    assert bool(circle(sources)) is found


@pytest.mark.parametrize(
    ("text", "part", "names"),
    [
        ("import tensorflow as tf", "ordering", ["1: tensorflow"]),
        ("def f():\n    from tensorflow.core import x", "ordering", ["2: tensorflow.core.x"]),
        ("from tfsched import grappler", "ordering", ["1: tfsched.grappler"]),
        ("from tfsched import stats", "ops", ["1: tfsched.stats"]),
        ("from .. import bench", "grappler", ["1: tfsched.bench"]),
        ("from ..bench.report import table", "grappler", ["1: tfsched.bench.report.table"]),
        ("from . import dag\nfrom .dag import Dag\nimport heapq, numpy as np", "ordering", []),
        ("from tfsched.bench import run", "tracing", ["1: tfsched.bench.run"]),
        ("from tfsched.bench import run", "commands", []),
    ],
)
def test_the_python_rule_sees(text: str, part: str, names: list[str]) -> None:
    assert broken(text, part, f"tfsched.{part}", PARTS[part]) == names


@pytest.mark.parametrize(
    ("text", "part", "names"),
    [
        ('#include "tensorflow/core/framework/tensor.h"', "core", ["1: tensorflow/core/framework/tensor.h"]),
        ("#include <vector>\n#include <absl/status/status.h>", "core", ["2: absl/status/status.h"]),
        ('#include "cc/transport/runtime.h"', "core", ["1: cc/transport/runtime.h"]),
        ('#include "gtest/gtest.h"', "core", ["1: gtest/gtest.h"]),
        ('#include "cc/core/policy.h"\n#include "tensorflow/core/x.h"', "transport", []),
    ],
)
def test_the_cc_rule_sees(text: str, part: str, names: list[str]) -> None:
    assert broken_includes(text, part, CC_PARTS[part], is_test=False) == names
