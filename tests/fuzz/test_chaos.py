"""A few faults at random moments, in every kind of run; ``make chaos`` draws more."""

import json

import pytest

from tests.cluster.cluster import task_environment
from tests.cluster.nurseries import Nurseries
from tests.fuzz import chaos, chaos_mirrored, chaos_programs, steps_told

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(("seed", "faults"), [(0, 8), (1, 8), (2, 8), (11, 8)])
def test_nothing_hangs_is_lost_or_made_twice(seed, faults):
    possible, reason = chaos.available()
    if not possible:
        pytest.skip(reason)
    run = chaos_programs.draw(seed, faults)
    with Nurseries(task_environment()) as nursery:
        found, stacks, _ = chaos.run_one(run, nursery)
    assert not found, "\n".join([json.dumps(run), *found, stacks])


@pytest.fixture(scope="module")
def nurseries():
    with Nurseries(task_environment()) as nurseries:
        yield nurseries


@pytest.fixture(scope="module")
def reference(nurseries):
    return chaos_mirrored.Reference(nurseries)


@pytest.mark.parametrize("seed", [7, 12], ids=["silent", "broken-input"])
def test_workers_that_all_reduce_are_told_what_has_ended_them(nurseries, reference, seed):
    found, log, errors = chaos_mirrored.run_one(chaos_mirrored.draw(seed), nurseries, reference)
    assert not found, "\n".join([*found, log])
    assert errors


def test_32_seeds_have_every_fault_in_every_way():
    drawn = [chaos_mirrored.draw(seed) for seed in range(32)]
    ways = {(run["fault"], run["workers"], run["options"]["barrier"]) for run in drawn}
    assert ways == {
        (fault, workers, kept) for fault in chaos_mirrored.FAULTS for workers in (2, 3) for kept in (True, False)
    }


@pytest.fixture
def told(tmp_path):
    """One worker's log: steps 0 and 4 reported, 8 failed, 12 reported with a gradient that does not fit, 16 under way."""
    entries = [
        *({"kind": "step", "number": number, "begin_s": number} for number in (0, 4)),
        *({"kind": "ok", "number": number, "end_s": number + 1} for number in (0, 4)),
        {"kind": "saved", "path": "saved1", "begin_s": 6, "end_s": 7},
        {"kind": "cancel", "number": 8, "begin_s": 8},
        {"kind": "failed", "number": 8, "end_s": 9},
        {"kind": "shape", "number": 12, "begin_s": 12},
        {"kind": "ok", "number": 12, "end_s": 13},
        {"kind": "step", "number": 16, "begin_s": 16},
    ]
    path = tmp_path / "worker0.log"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries) + '{"kind": "o')
    told = steps_told.Told(2)
    told.follow("worker0", path)
    return told


FIT = [{"0": 1, "4": 1, "12": 1}, {"0": 1, "4": 1}]


@pytest.mark.parametrize(
    ("variable", "step", "count", "what"),
    [
        (0, "8", 1, None),
        (1, "16", 1, None),
        (0, "0", 0, "it was reported"),
        (1, "4", 2, "it was told as ok"),
        (0, "8", 2, "it was told as failed"),
        (1, "12", 1, "does not fit"),
        (0, "12", 0, "it was reported"),
        (0, "20", 1, "nobody had begun it"),
    ],
)
def test_what_is_asked_of_the_marks(told, variable, step, count, what):
    marks = [dict(one) for one in FIT]
    marks[variable][step] = count
    told.check_end(marks)
    if what is None:
        assert not told.violations
    else:
        assert len(told.violations) == 1 and what in told.violations[0] and f"step {step} " in told.violations[0]


def test_a_lost_worker_takes_no_more_than_its_last_step_along(told):
    told.lost("worker0")
    told.check_end([{"0": 1, "4": 1}, {"0": 1, "4": 1}])
    assert not told.violations
    told.check_end([{"0": 1}, {"0": 1, "4": 1}])
    assert len(told.violations) == 1
    assert told.next_number(0) == 20 and told.next_number(1) == 1


def test_what_was_restored_stays_as_it_was(told):
    marks = {"saved1": [{"0": 1, "4": 1}, {"0": 1, "4": 1}]}
    told.restored(told.last_saved(), marks.get)
    told.check_end(marks["saved1"])
    assert not told.violations
    told.check_end(FIT)  # a step that came after the checkpoint
    assert "0 were restored" in told.violations[0]


def test_an_older_checkpoint_need_not_hold_what_was_restored_later(told, tmp_path):
    path = tmp_path / "worker1.log"
    path.write_text(json.dumps({"kind": "saved", "path": "saved0", "begin_s": 2, "end_s": 3}) + "\n")
    told.follow("worker1", path)
    marks = {"saved0": [{"0": 1}, {"0": 1}], "saved1": [{"0": 1, "4": 1}, {"0": 1, "4": 1}]}
    told.restored(told.last_saved(), marks.get)
    told.check_saves(marks.get)
    assert not told.violations
    # And what it lacks of its own time shows.
    path.write_text(path.read_text() + json.dumps({"kind": "saved", "path": "saved2", "begin_s": 20, "end_s": 21}) + "\n")
    told.check_saves({"saved2": [{"0": 1}, {"0": 1, "4": 1}]}.get)
    assert len(told.violations) == 1 and "step 4 " in told.violations[0]
