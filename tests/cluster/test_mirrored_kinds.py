"""Kinds of training across the barrier: stock TensorFlow's bits, whole steps for readers, and what keeps the barrier."""

import pytest

from tests.fuzz import bits

from .cluster import STOCK, Cluster

pytestmark = pytest.mark.timeout(540)
SLOW = {f"worker{number}": {"TFSCHED_EMULATED_BPS": "32e6"} for number in range(2)}
STEPS = 4
# Kind -> how many variables cross at least, the optimizer's among them, and what is said of those that do not.
KINDS = {
    "mixed precision": (0, {"its update is in a loop or a branch"}),
    "moving averages": (24, set()),
    "adamw": (0, {"its value is used after the update", "the step writes it more than once"}),
    "embedding": (24, {"its gradient is sparse"}),
    "jit update": (0, {"it is updated by StatefulPartitionedCall"}),
}


@pytest.fixture(scope="module")
def stock(nursery):
    with Cluster(ps=0, workers=2, nursery=nursery, mirrored=True, protocol=STOCK) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def pair(nursery):
    with Cluster(ps=0, workers=2, nursery=nursery, mirrored=True, environment=SLOW) as cluster:
        yield cluster


def looked_at(cluster, kind, options):
    """What each step has shown, and the variables that two ways of reading have seen right behind it."""
    bits.everywhere(cluster, "mirrored_kinds.open_training", kind=kind, options=options)
    seen = []
    for step in range(STEPS):
        way = "numpy" if step % 2 else "new"
        seen.append(bits.everywhere(cluster, "mirrored_crossing.step_and_look", kind=way))
    return [[(one["shown"], one["values"]) for one in both] for both in seen], bits.everywhere(
        cluster, "mirrored_crossing.variables"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_readers_see_whole_steps_in_the_bits_of_stock_tensorflow(stock, pair, kind):
    wanted = looked_at(stock, kind, None)
    assert looked_at(pair, kind, bits.CROSSED) == wanted
    report = pair.call("worker0", "mirrored_crossing.report")
    crossing, reasons = KINDS[kind]
    assert report["errors"] == 0 and report["crossing"] >= crossing, report
    assert set(report["kept"].values()) == reasons, report
