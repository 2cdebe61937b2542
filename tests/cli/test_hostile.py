"""200 mutated DAGs, traces, plans, tables and clusters through every command: a clear error or an answer, nothing else."""

from __future__ import annotations

import copy
import gzip
import json
import math
import random

import pytest

from tests.cli.conftest import CLUSTER, DAG, LAYERS, call
from tfsched.ordering import registry

COUNT = 40  # of each kind
SMALL = ["--iterations", 1, "--warmup", 0, "--method", "vanilla,tao,bytescheduler"]
# Values that a reader may stumble over, in place of whatever was there.
VALUES = [
    None, True, 0, -1, 1, 2**31, 2**63, -(2**63), 10**400, 1e-300, 1e300, 1e308, math.nan, math.inf, "", "x",
    "recv/a", "\x00", "\ud800", "a" * 5000,
    "[bold]", "$x$", [], [[]], {}, {"": []}, [None], ["recv/a", "recv/a"], "ring", "1gbit", "9" * 5000,
]  # fmt: skip


def places(value, path=()):
    """Every place in a JSON value, as a path of keys."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield from places(child, (*path, key))


def mutate(value, draw):
    """The value with one to three places replaced, removed, doubled or swapped."""
    value = copy.deepcopy(value)
    for _ in range(draw.randint(1, 3)):
        options = [path for path in places(value) if path]
        if not options:
            return value
        *above, key = draw.choice(options)
        holder = value
        for step in above:
            holder = holder[step]
        kind = draw.randrange(5)
        if kind <= 1:
            holder[key] = draw.choice(VALUES)
        elif kind == 2:
            del holder[key]
        elif kind == 3 and isinstance(holder, list):
            holder.insert(draw.randint(0, len(holder)), copy.deepcopy(holder[key]))
        elif isinstance(holder, dict):
            holder[draw.choice(["name", "x", "inputs", "bytes", "format"])] = holder[key]
        else:
            draw.shuffle(holder)
    return value


def damage(content, draw):
    """The bytes cut, with digits or anything changed, or with some doubled or gone."""
    content = bytearray(content)
    for _ in range(draw.randint(1, 2)):
        at = draw.randrange(len(content) + 1)
        kind = draw.randrange(6)
        if kind == 0:
            del content[at:]
        elif kind <= 2:
            digits = [i for i, byte in enumerate(content) if chr(byte).isdigit()]
            if digits:
                content[draw.choice(digits)] = ord(draw.choice("0123456789.-e"))
        elif kind == 3:
            content[at : at + 1] = bytes([draw.randrange(256)])
        elif kind == 4:
            content[at:at] = content[at : at + draw.randrange(1, 40)]
        else:
            del content[at : at + draw.randrange(1, 20)]
    return bytes(content)


def mutated(source, draw, number):
    """Every other mutation is of the value, the others of the text."""
    text = json.dumps(source) if not isinstance(source, str) else source
    if number % 2 and not isinstance(source, str):
        return json.dumps(mutate(source, draw)).encode("utf-8", "surrogatepass")
    return damage(text.encode(), draw)


def clear(answer, what):
    """An answer, or one sentence and exit code 2 (1 for a failure that is no mistake)."""
    if answer.code == 0:
        assert not answer.err, what
        return
    assert answer.code in (1, 2), what
    lines = answer.err.strip().splitlines()
    assert len(lines) == 1, (what, answer.err)
    assert lines[0].startswith("tfsched: "), what
    assert "Traceback" not in answer.err
    assert len(lines[0]) < 20_000


def through(path):
    """The commands that read such a file."""
    yield call("order", path, "--algorithm", "tao", "--json")
    yield call("explain", path)
    yield call("simulate", path, *SMALL)
    yield call("sweep", path, *SMALL, "--bandwidth", "1gbit", "--workers", "1,2", "--json")


@pytest.mark.parametrize("kind", ["dag", "trace", "table"])
def test_mutated_inputs(recorded, tmp_path, kind):
    source = {
        "dag": DAG,
        "table": LAYERS,
        "trace": json.loads(gzip.decompress((recorded / "trace.json.gz").read_bytes())),
    }[kind]
    draw = random.Random(f"{kind} 7")
    answered = 0
    for number in range(COUNT):
        path = tmp_path / ("input.csv" if kind == "table" else "input.json")
        path.write_bytes(mutated(source, draw, number))
        for answer in through(path):
            clear(answer, (kind, number))
            answered += answer.code == 0
    assert answered > 4  # not all of them are broken


def test_mutated_plans(tmp_path):
    """A plan is nothing that an offline command takes: it is said, or left out of a report."""
    plan = call("order", "--model", "resnet18", "--json").json()["plan"]
    draw = random.Random("plan 7")
    for number in range(COUNT):
        path = tmp_path / "plan.json"
        path.write_bytes(mutated(plan, draw, number))
        for answer in through(path):
            assert answer.code == 2
            clear(answer, ("plan", number))
        clear(call("report", tmp_path, *SMALL, "--json"), ("plan", number))


def test_mutated_clusters(recorded, tmp_path):
    draw = random.Random("cluster 7")
    answered = 0
    for number in range(COUNT):
        path = tmp_path / "cluster.yaml"
        if number % 2:
            keys = dict(line.split(": ") for line in CLUSTER.strip().splitlines())
            for key in draw.sample(sorted(keys), draw.randint(1, 2)):
                keys[key] = draw.choice(VALUES)
            # JSON is YAML, but for surrogates and control characters, which then make the file unreadable.
            path.write_bytes(json.dumps(keys).encode("utf-8", "surrogatepass"))
        else:
            path.write_bytes(damage(CLUSTER.encode(), draw))
        for command in ("simulate", "sweep"):
            workers = ["--workers", "1,2", "--bandwidth", "1gbit"] if command == "sweep" else []
            answer = call(command, recorded / "layers.csv", "--cluster", path, *workers, *SMALL)
            clear(answer, (command, number))
            answered += answer.code == 0
    assert answered > 4


def test_a_directory_of_broken_files_is_still_reported(recorded, tmp_path):
    draw = random.Random("report 7")
    sources = [DAG, LAYERS, json.loads(gzip.decompress((recorded / "trace.json.gz").read_bytes()))]
    sources += [json.loads(call("simulate", recorded / "dag.json", *SMALL, "--json").out)]
    sources += [
        json.loads(call("sweep", recorded / "dag.json", *SMALL, "--workers", "1", "--bandwidth", "1gbit", "--json").out)
    ]
    bench = {"model": "m", "bounds": {}, "settings": {"tio": {"steps_s": [0.1, 0.2], "efficiency": 0.5}}}
    for number, source in enumerate([*sources, bench] * 3):
        (tmp_path / f"{number}.json").write_bytes(mutated(source, draw, number))
    (tmp_path / "good.json").write_text(json.dumps(DAG))
    answer = call("report", tmp_path, *SMALL, "--json")
    summary = answer.json()
    assert summary["unused"]
    assert all(reason and "\n" not in reason for reason in summary["unused"].values())
    assert "good.json" in (tmp_path / "report.html").read_text()


@pytest.fixture
def own_register(monkeypatch):
    """What a test registers is gone after it: other tests run every ordering there is."""
    monkeypatch.setattr(registry, "_orderings", dict(registry._orderings))
    monkeypatch.setattr(registry, "_plugins", dict(registry._plugins))


@pytest.mark.parametrize(
    "text",
    [
        "raise SystemExit(3)",
        "import nothing_of_that_name",
        "x = 1",
        "import tfsched.ordering as o\n@o.register('h-none')\ndef f(dag, times_us=None, *, seed=0):\n    return None\n",
        "import tfsched.ordering as o\n@o.register('h-nan')\ndef f(dag, times_us=None, *, seed=0):\n"
        "    return {op.name: float('nan') for op in dag.recvs}\n",
        "import tfsched.ordering as o\n@o.register('h-few')\ndef f(dag, times_us=None, *, seed=0):\n    return {}\n",
        "import tfsched.ordering as o\n@o.register('h-text')\ndef f(dag, times_us=None, *, seed=0):\n"
        "    return {op.name: 'first' for op in dag.recvs}\n",
        "import tfsched.ordering as o\n@o.register('h-raise')\ndef f(dag, times_us=None, *, seed=0):\n    return 1 / 0\n",
    ],
)
def test_a_wrong_plugin_is_one_sentence(recorded, tmp_path, text, own_register):
    path = tmp_path / "plugin.py"
    path.write_text(text)
    name = text.split("'")[1] if "'" in text else "tao"
    for command, flag in (("order", "--algorithm"), ("explain", "--algorithm"), ("simulate", "--method")):
        answer = call(command, recorded / "dag.json", "--plugin", path, flag, name)
        assert answer.code in (1, 2), answer
        clear(answer, (command, text))


def test_one_wrong_ordering_does_not_keep_the_others_from_being_compared(recorded, tmp_path, own_register):
    path = tmp_path / "plugin.py"
    path.write_text(
        "import tfsched.ordering as o\n@o.register('h-broken')\ndef f(dag, times_us=None, *, seed=0):\n    return 1 / 0\n"
    )
    answer = call("order", recorded / "dag.json", "--plugin", path, "--compare", "all", "--json").json()
    errors = {row["ordering"]: row["error"] for row in answer["orderings"] if "error" in row}
    assert list(errors) == ["h-broken"]
    assert "ZeroDivisionError" in errors["h-broken"]
