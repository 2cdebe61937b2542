"""The bench through ParameterServerStrategy: real coordinators, tiny models."""

import json

import pytest

from tfsched.bench import BenchConfig, BenchError, run

from .test_cluster import toy

CROSSING = "bytescheduler+barrier-crossing"


def keys(result) -> dict[str, object]:
    """What a result holds, without its values."""
    return {
        **{name: sorted(value) if isinstance(value, dict) else None for name, value in result.items()},
        "row": sorted(result["settings"]["vanilla"]),
    }


def test_trains_on_two_ps_and_two_workers_beside_a_sessions_result(tmp_path, capsys):
    path = tmp_path / "a.json"
    config = {"phase": "train", "ps": 2, "workers": 2, "steps": 4, "block": 2}
    result = run(toy(api="strategy", settings=["vanilla", "tio", CROSSING], json=str(path), **config))
    assert json.loads(path.read_text()) == result
    printed = " ".join(capsys.readouterr().out.split())
    assert "api strategy" in printed and "a step is one scheduled function of a worker" in printed
    assert result["api"] == "strategy"
    assert list(result["settings"]) == ["vanilla", "tio", CROSSING]
    for row in result["settings"].values():
        assert len(row["steps_s"]) == result["rounds"] == 2
        assert all(0 < step_s < 60 for step_s in row["steps_s"])
        assert 0 <= row["straggler"] <= 1
    # Where the strategy has put the variables is where the bounds' transfers start.
    assert result["ps_bytes"] == {"/job:ps/task:0": 2 * 256 * 256 * 4, "/job:ps/task:1": 256 * 256 * 4}
    assert result["bounds"]["pull_s"] > 0 and result["bounds"]["push_s"] > 0
    assert not [note for note in result["notes"] if "no transfer was ordered" in note]
    session = run(toy(settings=["vanilla", "tio", CROSSING], quiet=True, **config))
    assert session["api"] == "session"
    assert keys(session) == keys(result)


def test_a_forward_run_finds_its_batch_and_says_what_was_not_ordered():
    result = run(toy(api="strategy", batch="auto", settings=["vanilla", "tio", "tio:ordering=none"], steps=2, quiet=True))
    assert result["batch"] >= 1
    assert result["bounds"]["push_s"] is None
    (note,) = [note for note in result["notes"] if "no transfer was ordered" in note]
    assert "tio:ordering=none" in note


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"api": "keras"}, "api 'keras' is unknown: choose session or strategy"),
        ({"api": "strategy", "claims": True}, "--claims traces the steps of sessions"),
    ],
)
def test_mistakes_are_told_before_anything_starts(changes, sentence):
    with pytest.raises(BenchError, match=sentence):
        run(toy(**changes))


def test_the_default_is_a_session():
    assert BenchConfig(models=["toy"]).api == "session"
