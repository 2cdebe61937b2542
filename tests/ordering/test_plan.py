"""Plans: ranks, lookup by source tensor, the file format and its error sentences."""

from __future__ import annotations

import copy
import io
import json
import pathlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfsched.ordering import OrderingError, Plan, PlanError, combined, get, make_plan, register, registry

from .dags import figure_2a, figure_4b

W0, W1 = "/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"
EXAMPLE: dict[str, Any] = {
    "format": "tfsched-plan/1",
    "algorithm": "tao",
    "transfers": [
        {"name": f"conv1/ReadVariableOp:0@{W0}", "priority": 0.0},
        {"name": f"conv2/ReadVariableOp:0@{W0}", "priority": 1.0, "chunk_bytes": [4, 4]},
    ],
    "metadata": {"model": "resnet50"},
}
PRIORITIES = st.dictionaries(st.text(min_size=1, max_size=5), st.sampled_from([-1.5, 0.0, 0, 1.0, 2, 1e9]), max_size=8)


@settings(max_examples=100, deadline=None)
@given(PRIORITIES)
def test_ranks_count_the_transfers_strictly_before(priorities: dict[str, float]) -> None:
    plan = Plan("x", priorities)
    listed = list(priorities)
    for name, rank in plan.ranks().items():
        key = (priorities[name], listed.index(name))
        assert rank == sum((priorities[n], listed.index(n)) < key for n in listed)
    assert sorted(plan.ranks().values()) == list(range(len(priorities)))


@settings(max_examples=100, deadline=None)
@given(PRIORITIES)
def test_round_trip_keeps_priorities_and_ranks(priorities: dict[str, float]) -> None:
    plan = Plan("x", priorities, {"k": [1, None]})
    again = Plan.from_json(json.dumps(plan.to_json()))
    assert again == plan and again.ranks() == plan.ranks()
    listed = [entry["priority"] for entry in plan.to_json()["transfers"]]
    assert listed == sorted(listed)


def test_the_documented_format_and_unknown_keys_of_a_transfer() -> None:
    plan = Plan.from_json(EXAMPLE)
    assert plan.extras == {f"conv2/ReadVariableOp:0@{W0}": {"chunk_bytes": [4, 4]}}
    assert plan.to_json() == EXAMPLE


def test_a_plan_of_one_worker_serves_the_others() -> None:
    plan = Plan("x", {f"a:0@{W0}": 2.0, f"a:0@{W1}": 1.0, f"b:0@{W0}": 3.0, "c:0": 4.0})
    assert plan.priority_of(f"a:0@{W0}") == 2.0  # the full name wins
    assert plan.priority_of("a:0@/job:worker/replica:0/task:7") == 1.0
    assert plan.priority_of(f"b:0@{W1}") == 3.0
    assert plan.priority_of("b:0") == 3.0
    assert plan.priority_of(f"c:0@{W1}") == 4.0
    assert plan.priority_of("b") is None
    soonest_first = Plan("x", {f"a:0@{W0}": 1.0, f"a:0@{W1}": 2.0})
    assert soonest_first.priority_of("a:0@/job:worker/replica:0/task:7") == 1.0
    assert plan.priority_of("") is None


SIZES = {f"a:0@{W0}": 4096, f"a:0@{W1}": 8192, f"b:0@{W0}": 0, f"c:0@{W0}": 0, f"c:0@{W1}": 65536}


def test_sizes_of_chunks_are_found_like_priorities() -> None:
    plan = Plan("x", {**dict.fromkeys(SIZES, 1.0), "d:0": 2.0}, partition_bytes=SIZES)
    assert [plan.partition_bytes_of(name) for name in SIZES] == list(SIZES.values())
    elsewhere = [f"{source}:0@/job:worker/replica:0/task:7" for source in "abcde"]
    assert [plan.partition_bytes_of(name) for name in elsewhere] == [4096, 0, 65536, None, None]
    assert plan.partition_bytes_of("d:0") is None


def test_sizes_of_chunks_are_saved_and_plans_without_them_still_load(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "plan.json")
    plan = Plan("x", {**dict.fromkeys(SIZES, 1.0), "d:0": 2.0}, partition_bytes=SIZES)
    plan.save(path)
    assert Plan.load(path) == plan
    assert "partition_bytes" not in plan.to_json()["transfers"][-1]
    assert Plan.from_json(EXAMPLE).partition_bytes == {}
    with pytest.raises(PlanError, match="transfer 'z' has a partition size and no priority"):
        Plan("x", {"a": 1.0}, partition_bytes={"z": 4096})
    with pytest.raises(PlanError, match="the partition sizes are 3; give name -> bytes"):
        Plan("x", {"a": 1.0}, partition_bytes=3)  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("{", "the plan is not JSON"),
        ("3", "the plan is 3; give a JSON object"),
        ('{"x": 1, "x": 1}', "the plan gives the key 'x' twice"),
        (changed("format", value=1), "the plan has format 1; this reader knows 'tfsched-plan/1'"),
        (changed("notes", value=1), "the plan has the unknown key 'notes'"),
        (changed("algorithm", drop=True), 'the plan has no "algorithm"; add it'),
        (changed("algorithm", value=""), "the plan's algorithm is ''; give a non-empty string"),
        (changed("transfers", drop=True), 'the plan has no "transfers"; add it'),
        (changed("transfers", value={}), '"transfers" is {}; give a list'),
        (changed("transfers", 0, value=1), "transfer number 0 is 1; give an object"),
        (changed("transfers", 0, "name", drop=True), 'transfer number 0 has no "name"; add it'),
        (
            changed("transfers", 0, "name", value=5),
            "the name of transfer number 0 is 5; give a non",
        ),
        (changed("transfers", 0, "priority", drop=True), "transfer 'conv1.*' has no \"priority\""),
        (changed("transfers", 0, "priority", value="1"), "'conv1.*' is '1'; give a number"),
        (changed("transfers", 0, "priority", value=True), "'conv1.*' is True; give a number"),
        (changed("transfers", 0, "priority", value=float("nan")), "is nan; give a finite number"),
        (changed("transfers", 0, "priority", value=-(10**400)), "is -1000.*; give a finite number"),
        (changed("transfers", 1, "name", value=EXAMPLE["transfers"][0]["name"]), "is given twice"),
        (
            changed("transfers", 0, "partition_bytes", value=100),
            "'conv1.*' is 100; give 0 .whole., or a whole number",
        ),
        (changed("transfers", 0, "partition_bytes", value=1e6), "'conv1.*' is 1000000.0; give 0"),
        (changed("transfers", 0, "partition_bytes", value=True), "'conv1.*' is True; give 0"),
        (changed("metadata", value=[]), r"the plan's metadata is \[\]; give an object"),
        (changed("metadata", value={"a": {1, 2}}), "the plan's metadata does not fit in JSON"),
    ],
)
def test_error_sentences(data: Any, sentence: str) -> None:
    with pytest.raises(PlanError, match=sentence) as caught:
        Plan.from_json(data)
    assert "\n" not in str(caught.value)


def test_save_and_load(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "plan.json")
    plan = Plan.from_json(EXAMPLE)
    plan.save(path)
    assert Plan.load(path) == plan
    with pytest.raises(PlanError, match=r"the plan '.*none.json' cannot be read"):
        Plan.load(str(tmp_path / "none.json"))
    with pytest.raises(PlanError, match=r"the plan cannot be written to '.*plan.json'"):
        plan.save(str(tmp_path / "no" / "plan.json"))


def test_open_fn_opens_remote_files() -> None:
    store: dict[str, str] = {}

    class Remote(io.StringIO):
        def __init__(self, path: str, mode: str) -> None:
            super().__init__(store[path] if mode == "r" else "")
            self.path, self.writes = path, mode == "w"

        def close(self) -> None:
            if self.writes:
                store[self.path] = self.getvalue()
            super().close()

    plan = Plan.from_json(EXAMPLE)
    plan.save("s3://bucket/plan", open_fn=Remote)
    assert Plan.load("s3://bucket/plan", open_fn=Remote) == plan
    with pytest.raises(PlanError, match="'s3://bucket/other' cannot be read"):
        Plan.load("s3://bucket/other", open_fn=Remote)


def test_make_plan() -> None:
    dag = figure_4b()
    plan = make_plan(dag, "tio")
    assert plan.algorithm == "tio" and plan.priorities == get("tio")(dag)
    assert plan.ranks() == {"B": 0, "A": 1, "C": 2, "D": 3}
    assert make_plan(dag, "random", seed=4).priorities == get("random")(dag, seed=4)
    slow = {"op2": 500.0, "recv1": 700.0}
    assert make_plan(figure_2a(), "tao", slow).priorities == get("tao")(figure_2a(), slow)
    with pytest.raises(OrderingError, match="ordering 'tia' is unknown"):
        make_plan(dag, "tia")


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        ({}, "ordering 'bad' gave no priority to recv op 'recv1'"),
        ({"recv1": 0, "recv2": 1, "op1": 2}, "gave a priority to 'op1', not a recv"),
        ({"recv1": 0, "recv2": float("inf")}, "the priority of transfer 'recv2' is inf"),
        (None, "ordering 'bad' returned None; return a dict"),
    ],
)
def test_make_plan_checks_what_an_ordering_returns(monkeypatch: pytest.MonkeyPatch, result: Any, sentence: str) -> None:
    monkeypatch.setattr(registry, "_orderings", dict(registry._orderings))
    register("bad")(lambda dag, times_us=None, *, seed=0: result)
    with pytest.raises(PlanError, match=sentence):
        make_plan(figure_2a(), "bad")


CUT = ((8192, 3.0), (4100, 1.0))


def test_pieces_are_found_by_name_and_by_source_and_kept_in_the_file() -> None:
    plan = Plan("x", {"a:0@w": 2.0, "a:0@v": 1.0, "b:0@w": 0.0}, pieces={"a:0@w": CUT, "a:0@v": [[4096, 1], [4096, 2]]})
    assert Plan.from_json(json.dumps(plan.to_json())) == plan
    assert plan.pieces_of("a:0@w") == CUT and plan.pieces_of("b:0@w") == ()
    assert plan.pieces_of("a:0@other") == ((4096, 1.0), (4096, 2.0))  # the soonest's
    assert plan.renamed({"a:0@w": "c:0@w"}).pieces_of("c:0@w") == CUT


@pytest.mark.parametrize(
    ("pieces", "sentence"),
    [
        ({"b": CUT}, "transfer 'b' has pieces and no priority; give it one"),
        ({"a": [[8192, 0.0]]}, "give a list of 2 to 4096 pairs"),
        ({"a": 5}, "give a list of 2 to 4096 pairs"),
        ({"a": [[8192, 0.0], 5]}, "have 5; give a pair"),
        ({"a": [[8192, 0.0], [100, 0.0]]}, "have one of 100 bytes; give 4096 or more"),
        ({"a": [[8193, 0.0], [8192, 0.0]]}, "of all but the last a multiple of 64"),
        ({"a": [[8192, float("inf")], [8192, 0.0]]}, "a priority in the pieces of transfer 'a' is inf"),
        ([CUT], "give name -> list of"),
    ],
)
def test_pieces_that_cannot_be_sent_are_refused(pieces: Any, sentence: str) -> None:
    with pytest.raises(PlanError, match=sentence):
        Plan("x", {"a": 0.0}, pieces=pieces)


def test_plans_of_different_transfers_combine() -> None:
    pulls = Plan("x", {"a@w": 1.0, "b@w": 2.0}, partition_bytes={"a@w": 4096}, groups=[("a@w", "b@w")])
    pushes = Plan("x", {"da@p": 2.0, "db@p": 1.0}).renamed({"da@p": "op@p"})
    assert pushes.priorities == {"da@p": 2.0, "op@p": 2.0, "db@p": 1.0}
    groups = [("da@p", "op@p"), ("op@p", "db@p"), ("da@p",)]
    both = combined("x", [pulls, pushes], groups, {"b@w": 8192}, {"a@w": CUT, "b@w": ()}, {"k": 1})
    assert both.groups == (("da@p", "op@p"), ("db@p",))  # each stays in the first of its groups
    assert both.partition_bytes == {"a@w": 4096, "b@w": 8192} and both.metadata == {"k": 1}
    assert both.pieces == {"a@w": CUT}
    assert combined("x", [pushes], groups, {}, {}, {}).groups is None  # nobody groups
    with pytest.raises(PlanError, match="unknown"):
        combined("x", [pulls], [("unknown", "a@w")], {}, {}, {})


def test_a_renamed_transfer_stays_in_its_group() -> None:
    plan = Plan("x", {"a": 0.0, "b": 1.0}, partition_bytes={"a": 0}, groups=[("a", "b")], contributions={"a": 3.0})
    again = plan.renamed({"a": "c", "unknown": "d"})
    assert again.groups == (("a", "b", "c"),)
    assert again.partition_bytes == {"a": 0, "c": 0} and again.contributions == {"a": 3.0, "c": 3.0}
