"""The DAG: its reader and writer, every error sentence, what is derived from it."""

from __future__ import annotations

import copy
import itertools
import json
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfsched.ordering import Dag, DagError, Op, Resource

from .dags import random_dags

EXAMPLE: dict[str, Any] = {
    "format": "tfsched-dag/1",
    "resources": {
        "w0/compute": {"kind": "compute"},
        "ps0>w0": {"kind": "link", "bandwidth_bps": 1e9, "startup_us": 0},
    },
    "ops": [
        {"name": "recv/w1", "resource": "ps0>w0", "bytes": 4000000, "inputs": []},
        {"name": "conv1", "resource": "w0/compute", "time_us": 120.5, "inputs": ["recv/w1"]},
    ],
}


def changed(*path: Any, value: Any = None, drop: bool = False) -> dict[str, Any]:
    """Return EXAMPLE with the entry at `path` replaced or dropped."""
    data = copy.deepcopy(EXAMPLE)
    place: Any = data
    for key in path[:-1]:
        place = place[key]
    if drop:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return data


def test_the_documented_example() -> None:
    for source in (EXAMPLE, json.dumps(EXAMPLE), json.dumps(EXAMPLE).encode()):
        dag = Dag.from_json(source)
        assert [op.name for op in dag.recvs] == ["recv/w1"]
        assert dag.times_us() == [32000.0, 120.5]  # 4 MB at 1 Gbit/s: 32 ms
        assert dag.index == {"recv/w1": 0, "conv1": 1}
        assert dag.to_json() == EXAMPLE


def test_startup_is_added_and_time_us_wins() -> None:
    data = changed("resources", "ps0>w0", "startup_us", value=50)
    assert Dag.from_json(data).times_us()[0] == 32050.0
    data["ops"][0]["time_us"] = 7
    assert Dag.from_json(data).times_us()[0] == 7.0


def test_override_replaces_and_ignores_strangers() -> None:
    dag = Dag.from_json(EXAMPLE)
    measured: Any = np.float32(2)
    assert dag.times_us({"conv1": measured, "elsewhere": 9.0}) == [32000.0, 2.0]
    assert dag.times_us() == [32000.0, 120.5]
    with pytest.raises(DagError, match="the time of op 'conv1' is -1; give a number of zero"):
        dag.times_us({"conv1": -1})


def test_compute_without_time_counts_as_zero() -> None:
    assert Dag.from_json(changed("ops", 1, "time_us", drop=True)).times_us()[1] == 0.0


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("nonsense", "the dag is not JSON .*; check the file"),
        ("\ud800", "the dag is not JSON"),
        (b"\xff\xfe\xff", "the dag is not JSON"),
        ("[" * 100_000, "nested too deeply|is not JSON"),
        ('{"format": ' + "1" * 5000 + "}", "the dag is not JSON|has format"),
        ("[]", r"the dag is \[\]; give a JSON object"),
        (None, "the dag is None; give a JSON object"),
        ('{"a": 1, "b": 2, "a": 3}', "the dag gives the key 'a' twice in one object"),
        (changed("format", value="tfsched-dag/2"), "format 'tfsched-dag/2'; this reader knows"),
        (changed("format", drop=True), "the dag has format None; this reader knows"),
        (changed("comment", value=""), "the dag has the unknown key 'comment'; known keys: format"),
        (changed("resources", value=[]), r'the dag\'s "resources" is \[\]; give an object'),
        (changed("resources", drop=True), '"resources" is None; give an object'),
        (changed("ops", value={}), '"ops" is {}; give a list'),
        (changed("ops", value=[]), "the dag has no ops; give at least one"),
        (changed("resources", "", value={"kind": "compute"}), "name is ''; give a non-empty"),
        (changed("resources", "ps0>w0", value=7), "resource 'ps0>w0' is 7; give an object"),
        (changed("resources", "ps0>w0", "kind", drop=True), "'ps0>w0' has no \"kind\""),
        (changed("resources", "ps0>w0", "kind", value="lnk"), "'ps0>w0' has kind 'lnk'; give"),
        (changed("resources", "ps0>w0", "gbps", value=1), "'ps0>w0' has the unknown key 'gbps'"),
        (changed("resources", "ps0>w0", "bandwidth_bps", value=0), "is 0; give a number above"),
        (changed("resources", "ps0>w0", "bandwidth_bps", value=None), "is null; give a number or"),
        (changed("resources", "ps0>w0", "bandwidth_bps", value=True), "is True; give a number"),
        (changed("resources", "ps0>w0", "bandwidth_bps", value="1"), "is '1'; give a number"),
        (changed("resources", "ps0>w0", "bandwidth_bps", value=1e-310), "'recv/w1' .* takes forev"),
        (changed("resources", "ps0>w0", "startup_us", value=-1), "the startup_us of resource 'ps0"),
        (changed("resources", "w0/compute", "bandwidth_bps", value=1), "is a compute resource wit"),
        (changed("ops", 0, value=3), "op number 0 is 3; give an object"),
        (changed("ops", 1, "name", drop=True), 'op number 1 has no "name"; add it'),
        (changed("ops", 1, "inputs", drop=True), "op 'conv1' has no \"inputs\"; add it"),
        (changed("ops", 1, "resource", drop=True), "op 'conv1' has no \"resource\"; add it"),
        (changed("ops", 1, "name", value=""), "the name of op number 1 is ''; give a non-empty"),
        (changed("ops", 1, "name", value=[1]), r"the name of op number 1 is \[1\]; give a non-emp"),
        (changed("ops", 1, "name", value="recv/w1"), "op 'recv/w1' is given twice; rename one"),
        (changed("ops", 1, "time", value=1), "op 'conv1' has the unknown key 'time'; known keys"),
        (changed("ops", 1, "resource", value="gpu"), "op 'conv1' is on the unknown resource 'gpu'"),
        (changed("ops", 1, "resource", value=[]), r"op 'conv1' is on the unknown resource \[\]"),
        (changed("ops", 1, "inputs", value="recv/w1"), "inputs of op 'conv1' are 'recv/w1'; give "),
        (changed("ops", 1, "inputs", value=[1]), "op 'conv1' has the input 1; give an op's name"),
        (changed("ops", 1, "inputs", value=["x"]), "op 'conv1' has the unknown input 'x'; add tha"),
        (changed("ops", 1, "inputs", value=["conv1"]), "'conv1' waits for itself: 'conv1' -> 'con"),
        (changed("ops", 0, "inputs", value=["conv1"]), "waits for itself: .*'recv/w1' -> 'conv1'|"),
        (changed("ops", 1, "time_us", value=-0.5), "the time_us of op 'conv1' is -0.5; give a num"),
        (changed("ops", 1, "time_us", value=float("nan")), "of op 'conv1' is nan; give a finite"),
        (changed("ops", 1, "time_us", value=float("inf")), "of op 'conv1' is inf; give a finite"),
        (changed("ops", 1, "time_us", value=10**400), "of op 'conv1' is 1000.*; give a finite"),
        (changed("ops", 1, "time_us", value=10**9999), "is a int too large to print; give a finit"),
        (changed("ops", 1, "time_us", value=True), "of op 'conv1' is True; give a number"),
        (changed("ops", 1, "time_us", value="3"), "of op 'conv1' is '3'; give a number"),
        (changed("ops", 1, "time_us", value=None), "the time_us of op 'conv1' is null; give a num"),
        (changed("ops", 0, "bytes", value=-4), "size in bytes of op 'recv/w1' is -4; give a numbe"),
        (changed("ops", 0, "bytes", value=1.5), "op 'recv/w1' is 1.5; give a whole number"),
        (changed("ops", 0, "bytes", value=False), "op 'recv/w1' is False; give a number"),
        (changed("ops", 0, "bytes", value=2**63), "is 9223372036854775808; give at most"),
        (changed("ops", 0, "bytes", drop=True), "'recv/w1' on link 'ps0>w0' has neither time_us"),
        (changed("resources", "ps0>w0", "bandwidth_bps", drop=True), "has no time_us; give it, or"),
    ],
)  # fmt: skip
def test_error_sentences(data: Any, sentence: str) -> None:
    with pytest.raises(DagError, match=sentence) as caught:
        Dag.from_json(data)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_duplicate_keys_in_text_are_refused() -> None:
    text = json.dumps(EXAMPLE).replace('"w0/compute": {', '"ps0>w0": {"kind": "link"}, "w0/compute": {')
    with pytest.raises(DagError, match="gives the key 'ps0>w0' twice"):
        Dag.from_json(text)


def test_errors_of_direct_construction() -> None:
    cpu = Resource("cpu", "compute")
    with pytest.raises(DagError, match="resource 'cpu' is given twice"):
        Dag([cpu, cpu], [Op("a", "cpu")])
    with pytest.raises(DagError, match="op number 1 is 'b'; give an Op"):
        Dag([cpu], [Op("a", "cpu"), "b"])  # type: ignore[list-item]


def test_a_cycle_is_named_in_the_direction_of_data() -> None:
    # start -> a -> b -> c -> a, and c -> end: neither start nor end is part of it.
    cpu = Resource("cpu", "compute")
    ops = [
        Op("end", "cpu", ("c",)), Op("start", "cpu"), Op("a", "cpu", ("start", "c")),
        Op("b", "cpu", ("a",)), Op("c", "cpu", ("b",)),
    ]  # fmt: skip
    with pytest.raises(DagError) as caught:
        Dag([cpu], ops)
    cycle = str(caught.value).split(": ")[1].split(";")[0].split(" -> ")
    assert cycle[0] == cycle[-1]
    edges = set(itertools.pairwise(cycle))
    assert edges == {("'a'", "'b'"), ("'b'", "'c'"), ("'c'", "'a'")}
    ring = [Op(f"n{i}", "cpu", (f"n{(i - 1) % 500}",)) for i in range(500)]
    with pytest.raises(DagError, match=r"\(49\d more\)") as caught:
        Dag([cpu], ring)
    assert len(str(caught.value)) < 400


def test_topological_order_is_stable_by_position_in_the_file() -> None:
    cpu = Resource("cpu", "compute")
    ops = [Op("z", "cpu", ("b",)), Op("b", "cpu"), Op("a", "cpu"), Op("y", "cpu", ("a", "a"))]
    dag = Dag([cpu], ops)
    assert [dag.ops[i].name for i in dag.topological_order] == ["b", "z", "a", "y"]
    assert dag.input_indices[3] == (2,) and dag.consumers[2] == (3,)


@settings(max_examples=100, deadline=None)
@given(random_dags())
def test_round_trip_and_topological_order(dag: Dag) -> None:
    again = Dag.from_json(json.dumps(dag.to_json()))
    assert again.ops == dag.ops and again.resources == dag.resources
    position = {i: rank for rank, i in enumerate(dag.topological_order)}
    assert sorted(position) == list(range(len(dag.ops)))
    assert all(position[j] < position[i] for i in position for j in dag.input_indices[i])


HOSTILE: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, False, -1, 0, 0.5, 1e308, float("nan"), float("-inf"), 10**400, 10**5000, "", "x",
     "conv1", "recv/w1", "\ud800", "\n", [], {}, [[]], [None], ["conv1", "conv1"], {"kind": "link"}]
)  # fmt: skip


def _paths(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    result = []
    for key, inner in entries:
        result.append((*prefix, key))
        if isinstance(inner, (dict, list)):
            result.extend(_paths(inner, (*prefix, key)))
    return result


def _reads_or_explains(source: Any) -> bool:
    try:
        dag = Dag.from_json(source)
    except DagError as error:
        assert "\n" not in str(error) and 0 < len(str(error)) < 500
        return False
    assert Dag.from_json(dag.to_json()).ops == dag.ops
    return True


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(_paths(EXAMPLE)), HOSTILE, st.booleans()), max_size=3))
def test_hostile_values_never_raise_anything_else(edits: list[tuple[Any, Any, bool]]) -> None:
    data: Any = copy.deepcopy(EXAMPLE)
    for path, value, drop in edits:
        place = data
        try:
            for key in path[:-1]:
                place = place[key]
            if drop:
                del place[path[-1]]
            else:
                place[path[-1]] = value
        except (LookupError, TypeError):
            continue  # an earlier edit removed the place
    read = _reads_or_explains(data)
    assert read or edits


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=3)), min_size=1, max_size=4))
def test_damaged_text_never_raises_anything_else(edits: list[tuple[int, bytes]]) -> None:
    text = json.dumps(EXAMPLE).encode()
    for position, junk in edits:
        text = text[:position] + junk + text[position + 1 :]
    _reads_or_explains(text)


def test_a_large_dag_loads_quickly() -> None:
    ops: list[dict[str, Any]] = [{"name": "r", "resource": "ps0>w0", "bytes": 1, "inputs": []}]
    for i in range(30_000):
        inputs = [ops[-1]["name"], ops[i // 2]["name"]]
        ops.append({"name": f"op{i}", "resource": "w0/compute", "time_us": 1.0, "inputs": inputs})
    text = json.dumps({**EXAMPLE, "ops": ops})
    start_s = time.process_time()
    dag = Dag.from_json(text)
    assert len(dag.topological_order) == 30_001
    assert time.process_time() - start_s < 5  # about 0.3 s; quadratic work would take minutes
