"""The bench through ParameterServerStrategy: real coordinators, tiny models."""

import json

import pytest

from tfsched.bench import BenchConfig, BenchError, run
from tfsched.bench.coordinator import last_finishes
from tfsched.ordering.metrics import straggler_effect

from .test_cluster import toy

CROSSING = "bytescheduler+barrier-crossing"


def keys(result) -> dict[str, object]:
    """What a result holds, without its values."""
    return {
        **{name: sorted(value) if isinstance(value, dict) else None for name, value in result.items() if name != "settings"},
        "row": sorted(result["settings"]["vanilla"]),
    }


def test_two_workers_train_and_the_result_is_like_a_sessions(tmp_path, capsys):
    path = tmp_path / "a.json"
    names = ["vanilla", "tao", CROSSING, "tio:ordering=none"]
    result = run(
        toy(api="strategy", phase="train", workers=2, settings=names, steps=4, block=2, json=str(path), beside=True)
    )
    assert json.loads(path.read_text()) == result
    printed = " ".join(capsys.readouterr().out.split())
    assert "api strategy" in printed and "a step is one scheduled function of a worker" in printed
    assert result["api"] == "strategy"
    assert list(result["settings"]) == names
    for row in result["settings"].values():
        assert len(row["steps_s"]) == result["rounds"] == 2
        assert all(0 < step_s < 60 for step_s in row["steps_s"])
        assert 0 <= row["straggler"] <= 1
    # Where the strategy has put the variables is where the bounds' transfers start.
    assert result["ps_bytes"] == {"/job:ps/task:0": 3 * 256 * 256 * 4}
    assert result["bounds"]["pull_s"] > 0 and result["bounds"]["push_s"] > 0
    (note,) = [note for note in result["notes"] if "no transfer was ordered" in note]
    assert "tio:ordering=none" in note
    assert 0 < result["bounds"]["beside_s"] < 60
    session = run(toy(quiet=True, steps=1))
    assert session["api"] == "session"
    assert keys(session) == keys(result)


def test_a_long_block_of_two_workers_has_one_list_of_ends_and_balanced_servers_hold_the_same():
    options = {"settings": ["vanilla", CROSSING], "steps": 7, "block": 7, "quiet": True}
    # Layers of 4.8 MB: each is cut in two.
    placed = {"models": ["mlp3x1100"], "ps": 2, "placement": "balanced"}
    result = run(toy(api="strategy", phase="train", workers=2, **options, **placed))
    assert result["placement"] == "balanced" and result["imbalance"] == 1.0
    assert sum(result["ps_bytes"].values()) == 3 * 1100 * 1100 * 4
    for row in result["settings"].values():
        assert len(row["steps_s"]) == 1
        assert 0 < row["median_s"] < 60 and 0 < row["with_ends_s"] < 60
        assert row["median_s"] != row["with_ends_s"]


def test_a_worker_that_got_no_step_was_idle_all_the_time():
    finishes_s = last_finishes([(1, 12.0), (1, 14.0)], workers=2, began_s=10.0)
    assert finishes_s[1] == 4.0
    assert straggler_effect([finishes_s]) == pytest.approx(1.0)
    assert last_finishes([(0, 13.0), (1, 14.0)], 2, 10.0) == [3.0, 4.0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"api": "keras"}, "api 'keras' is unknown: choose session, strategy, mirrored or parallel"),
        ({"placement": "best"}, "placement 'best' is unknown: choose round-robin or balanced"),
        ({"api": "mirrored", "placement": "balanced"}, "--placement is about parameter servers"),
        ({"api": "strategy", "claims": True}, "--claims traces the steps of sessions"),
    ],
)
def test_mistakes_are_told_before_anything_starts(changes, sentence):
    with pytest.raises(BenchError, match=sentence):
        run(toy(**changes))


def test_the_default_is_a_session():
    assert BenchConfig(models=["toy"]).api == "session"
