"""Workers that differ train as stock TensorFlow does, and say why; ``make mixed`` trains them in every combination."""

import functools

import pytest

from tests.fuzz import mixed

pytestmark = pytest.mark.timeout(540)
OURS, STOCK = "this build", "stock"


@pytest.fixture(scope="module")
def wanted(nursery):
    """What so many stock workers compute."""
    return functools.lru_cache(lambda members: mixed.stock_results(nursery, members))


@pytest.mark.parametrize(
    ("processes", "combinations"),
    [
        ((OURS, OURS), None),
        ((OURS, STOCK), None),
        ((OURS, STOCK, OURS), [("crossed", "stock", "kept")]),
    ],
    ids=["ours", "with-stock", "three"],
)
def test_mixed_workers_train_as_stock_tensorflow_does(nursery, wanted, processes, combinations):
    if combinations is None:
        batches = mixed.combinations(len(processes))
        (combinations,) = [batch for batch in batches if mixed.processes_of(batch[0]) == processes]
    found = {}

    def report(kinds, lines, stacks):
        if lines:
            found[kinds] = [*lines, stacks]

    mixed.run_batch(nursery, combinations, wanted(len(processes)), report)
    assert not found
