"""The memory: what was remembered comes back, and a file of something else is left alone."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfsched._rules import MIN_PARTITION_BYTES, POLICIES
from tfsched.errors import TfschedError
from tfsched.tuning import Key, Memory, Setting
from tfsched.tuning.memory import FORMAT

KEYS = st.builds(
    Key.of,
    st.text(st.characters(codec="utf-8"), max_size=10),
    st.integers(1, 9),
    st.integers(0, 9),
    st.floats(1e3, 1e15),
    st.sampled_from(["ps", "allreduce", "ring"]),
)
SETTINGS = st.builds(
    Setting,
    st.just(0) | st.integers(MIN_PARTITION_BYTES, 2**40),
    st.integers(0, 2**40),
    st.sampled_from(POLICIES),
)
KEY, SETTING = Key("vgg16", 2, 2, 1e9, "ps"), Setting(500_000, 1_000_000, "bytescheduler")


@given(results=st.dictionaries(KEYS, st.tuples(SETTINGS, st.floats(1e-6, 1e6)), min_size=1, max_size=5))
def test_what_was_remembered_comes_back(tmp_path_factory, results):
    path = str(tmp_path_factory.mktemp("memory") / "tuning.json")
    memory = Memory(path)
    for key, (setting, seconds) in results.items():
        memory.remember(key, setting, seconds)
    again = Memory(path)
    assert again.problem == ""
    assert {key: again.recall(key) for key in results} == {key: setting for key, (setting, _) in results.items()}
    assert again.recall(Key("none", 1, 1, 1.0, "ps")) is None
    assert os.listdir(os.path.dirname(path)) == ["tuning.json"]


def test_a_newer_result_takes_the_place_of_an_older_one(tmp_path):
    memory = Memory(str(tmp_path / "m"))
    memory.remember(KEY, SETTING, 1.0)
    memory.remember(KEY, SETTING._replace(policy="p3"), 2.0)
    assert Memory(str(tmp_path / "m")).recall(KEY) == SETTING._replace(policy="p3")


def test_two_programs_remember_in_one_file(tmp_path):
    one, other = Memory(str(tmp_path / "m")), Memory(str(tmp_path / "m"))
    one.remember(KEY, SETTING, 1.0)
    other.remember(KEY._replace(workers=3), SETTING, 1.0)
    memory = Memory(str(tmp_path / "m"))
    assert memory.recall(KEY) == memory.recall(KEY._replace(workers=3)) == SETTING


def test_a_measured_bandwidth_finds_its_like():
    assert Key.of("m", 1, 1, 0.987e9, "ps") == Key.of("m", 1, 1, 0.992e9, "ps") != Key.of("m", 1, 1, 0.92e9, "ps")


GOOD = {**KEY._asdict(), **SETTING._asdict(), "seconds": 1.0}


def damaged():
    yield "empty", b""
    yield "text", b"hello"
    yield "no text", b"\xff\xfe\x00"
    yield "deep", b"[" * 100_000
    yield "digits", b"9" * 10_000
    for name, value in {
        "list": [],
        "other": {"format": "tfsched-dag/1", "results": []},
        "newer": {"format": "tfsched-tuning/2", "results": []},
        "no results": {"format": FORMAT},
        "no row": {"format": FORMAT, "results": [1]},
    }.items():
        yield name, json.dumps(value).encode()
    for field in GOOD:
        for value in (None, -1, True, [], "", "x", float("nan"), 10**400):
            if not (isinstance(value, str) and field in ("model", "architecture")):
                row = json.dumps({"format": FORMAT, "results": [GOOD, {**GOOD, field: value}]})
                yield f"{field} {str(value)[:9]}", row.encode()


@pytest.mark.parametrize(("content"), [pytest.param(content, id=name) for name, content in damaged()])
def test_a_damaged_or_foreign_file_is_one_sentence_and_stays_as_it_is(tmp_path, content):
    path = tmp_path / "memory.json"
    path.write_bytes(content)
    memory = Memory(str(path))
    assert memory.problem.startswith(f"The memory {path} ") and memory.problem.endswith("name another file.")
    assert "\n" not in memory.problem and len(memory.problem) < len(str(path)) + 200
    assert memory.recall(KEY) is None
    memory.remember(KEY, SETTING, 1.0)
    assert path.read_bytes() == content


def test_a_directory_is_one_sentence(tmp_path):
    assert "cannot be read (Is a directory)" in Memory(str(tmp_path)).problem


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path):
    memory = Memory(str(tmp_path / "no" / "memory.json"))
    assert memory.problem == ""
    with pytest.raises(TfschedError, match=r"cannot be written \(No such file or directory\)"):
        memory.remember(KEY, SETTING, 1.0)
