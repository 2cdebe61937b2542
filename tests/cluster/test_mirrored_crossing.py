"""All-reduces behind the step's end: training is that of stock, and whoever reads a variable sees a finished step."""

import pytest

from .cluster import STOCK, Cluster
from .test_mirrored import everywhere

pytestmark = pytest.mark.timeout(540)
STEPS = 12
CROSSING = {"barrier": False}
SLOW = {"TFSCHED_EMULATED_BPS": "16e6"}  # two large gradients of 160 KB each: 160 ms
MODEL = "mirrored_crossing."


def mirrored(nursery, workers=2, slow=True, **arguments):
    environment = {f"worker{number}": SLOW for number in range(workers)} if slow else {}
    return Cluster(ps=0, workers=workers, nursery=nursery, mirrored=True, environment=environment, **arguments)


@pytest.fixture(scope="module")
def stock(nursery):
    with mirrored(nursery, protocol=STOCK, slow=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def pair(nursery):
    with mirrored(nursery) as cluster:
        yield cluster


def trained(cluster, own=None, steps=STEPS, **arguments):
    """Trains on all workers; (what each step has shown and the variables, how long steps took) of each."""
    everywhere(cluster, MODEL + "open_training", own, **arguments)
    made = everywhere(cluster, MODEL + "steps", count=steps)
    values = everywhere(cluster, MODEL + "variables")
    return [(one["shown"], value) for one, value in zip(made, values, strict=True)], [one["took_s"] for one in made]


@pytest.mark.parametrize(
    "arguments",
    [
        {"rule": "descent"},
        {"rule": "momentum", "dtype": "bfloat16"},
        {"rule": "sgd"},
        {"rule": "adam"},
        {"rule": "descent", "clip": True},
    ],
    ids=lambda arguments: "-".join(map(str, arguments.values())),
)
def test_identical_to_stock(stock, pair, arguments):
    wanted, _ = trained(stock, **arguments)
    before = pair.stats("worker0")
    got, _ = trained(pair, options=CROSSING, **arguments)
    assert got == wanted
    assert got[0][1] == got[1][1] and got[0][0] != got[1][0]
    after = pair.stats("worker0")
    assert after["background_calls"] - before["background_calls"] == STEPS
    assert after["background_failed"] == after["background_outstanding"] == after["all_reduces_failed"] == 0
    assert after["all_reduces"] - before["all_reduces"] >= 3 * STEPS and after["packs_stock"] == 0
    report = pair.call("worker0", MODEL + "report")
    assert report["crossing"] >= 8 and report["kept"] == {} and report["errors"] == 0, report


def test_a_step_returns_before_its_updates_and_a_plain_loop_waits_for_nothing_else(pair):
    everywhere(pair, MODEL + "open_training", options=CROSSING)
    everywhere(pair, MODEL + "steps", count=2)
    everywhere(pair, MODEL + "variables")
    before = pair.stats("worker0")["background_calls"]
    made = everywhere(pair, MODEL + "step_and_look", kind="numpy")
    assert [one["under_way"] for one in made] == [1, 1]
    assert pair.stats("worker0")["background_calls"] == before + 1
    assert everywhere(pair, MODEL + "waits") == [[], []]


KINDS = [
    "numpy",
    "eager",
    "checkpoint",
    "traced",
    "new",
    "with barrier",
    "drain",
    "disable",
    "assign",
    "assign in a function",
]


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_reads_a_variable_sees_a_finished_step(stock, pair, kind):
    def looked(cluster, options, kind):
        everywhere(cluster, MODEL + "open_training", options=options)
        seen = []
        for _ in range(3):
            everywhere(cluster, MODEL + "steps", count=1)
            seen.append(everywhere(cluster, MODEL + "step_and_look", kind=kind))
        values = everywhere(cluster, MODEL + "variables")
        return [[(one["shown"], one["values"]) for one in both] for both in seen], values, seen

    plain = kind if kind in ("assign", "assign in a function") else "numpy"
    wanted, values, _ = looked(stock, None, plain)
    got, end, seen = looked(pair, CROSSING, kind)
    assert (got, end) == (wanted, values)
    # disable() ends it for all later steps.
    assert all(one["under_way"] == 1 for both in seen[: 1 if kind == "disable" else 3] for one in both), seen
