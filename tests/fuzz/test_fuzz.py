"""Programs of fixed seeds, of every kind; ``make fuzz`` draws more."""

import pytest

from tests.cluster.cluster import task_environment
from tests.cluster.nurseries import Nurseries
from tests.fuzz import drawing, model, programs, running

pytestmark = pytest.mark.timeout(300)
# Five of each block, which is of one kind and on clusters of one shape.
SEEDS = [block * drawing.BLOCK + number for block in range(5) for number in range(5)]
# Of workers that all-reduce two and, in another block, three; some lose one.
SEEDS += [drawing.MIRRORED_FROM + number for number in (0, 2, 5, 40, 41)]


@pytest.fixture(scope="module")
def bench():
    with Nurseries(task_environment()) as nursery, running.Bench(nursery) as bench:
        yield bench


@pytest.mark.parametrize("seed", SEEDS)
def test_a_program_gives_what_it_gives_without_tfsched(bench, seed):
    found = bench.run(programs.draw(seed))
    assert found is None, found.text()


def test_what_is_asked_of_asynchronous_workers_is_what_stock_tensorflow_gives(bench):
    for seed in (drawing.BLOCK, 4 * drawing.BLOCK):
        program = programs.draw(seed) | {running.STOCK_ONLY: True}
        assert program["kind"] in ("asynchronous", "synchronous")
        found = bench.run(program)
        assert found is None, found.text()


def test_a_seed_is_one_program():
    assert {programs.draw(seed)["kind"] for seed in SEEDS} == {*drawing.KINDS, "mirrored"}
    assert [programs.draw(seed) for seed in SEEDS] == [programs.draw(seed) for seed in SEEDS]
    assert [one["seed"] for one in programs.draw_many(0, 3, ("strategy",))] == [40, 41, 42]


def log(*entries):
    """A worker's log of (kind, begin, end, count or range)."""
    return [
        {"kind": kind, "begin_s": begin_s, "end_s": end_s, "seen": {"v0": seen if isinstance(seen, list) else [seen, seen]}}
        for kind, begin_s, end_s, seen in entries
    ]


def test_the_model_knows_what_a_read_may_have_seen():
    steps = log(("step", 0, 1, 0), ("step", 2, 3, 1))
    for count, allowed in ((0, False), (1, True), (2, True), (3, False)):
        found = model.violations([steps, log(("read", 1.5, 2.5, count))])
        assert (not found) == allowed, found
    assert "part of an update" in model.violations([steps, log(("read", 1.5, 2.5, [1, 2]))])[0]
    assert "part of an update" in model.violations([steps, log(("read", 1.5, 2.5, [None, None]))])[0]


def test_the_model_takes_a_step_counter_at_its_word():
    steps = log(*[("step", number, number + 1, [0, 0]) for number in range(0, 8, 2)])
    for entry in steps:
        entry["seen"] = {}
    told = [{"kind": "counter", "begin_s": 8, "end_s": 8.5, "seen": {"global_step": [2, 2]}}]
    assert not model.violations([steps, [*told, *log(("read", 9, 10, 2))]], replicas=2)
    assert model.violations([steps, [*told, *log(("read", 9, 10, 1))]], replicas=2)
    assert model.violations([steps, [*told, *log(("read", 9, 10, 3))]], replicas=2)


def test_counts():
    assert [model.count_of(value, momentum=False) for value in (-3, -2.5)] == [3, None]
    assert [model.count_of(value, momentum=True) for value in (-6, -5)] == [3, None]
