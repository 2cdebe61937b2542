"""Training gives the same bits with and without tfsched: every loss of 50 steps and every variable after them."""

import math

import pytest

from .cluster import STOCK, Cluster

pytestmark = pytest.mark.timeout(300)
STEPS = 50
SIZE = {"ps": 2}


@pytest.fixture(scope="module")
def stock(nursery):
    """A cluster without tfsched, with two parameter servers."""
    with Cluster(nursery=nursery, protocol=STOCK, **SIZE) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def ordered(nursery):
    """The same with tfsched in every task."""
    with Cluster(nursery=nursery, **SIZE) as cluster:
        yield cluster


def tasks(cluster):
    """How many ordered transfers have left the parameter servers."""
    return sum(cluster.wait_idle(name)["tasks"] for name in ("ps0", "ps1"))


def check(result, steps=STEPS):
    """That the training really was one: as many losses as steps, nearly all of them different."""
    assert len(result["losses"]) == steps
    assert all(math.isfinite(float.fromhex(loss)) for loss in result["losses"])
    assert len(set(result["losses"])) > steps * 0.9
    assert len(set(result["variables"].values())) > 3


@pytest.fixture(scope="module")
def wanted(stock):
    """Scenario and its arguments -> what stock TensorFlow gives, computed once."""
    known = {}

    def get(scenario, **arguments):
        key = (scenario, *sorted(arguments.items()))
        if key not in known:
            known[key] = stock.call("worker0", scenario, limit_s=200, options=None, **arguments)
            check(known[key], arguments["steps"])
        return known[key]

    return get


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"credit_bytes": 1},
        {"policy": "fifo"},
        {"policy": "bytescheduler", "credit_bytes": 50_000},
        {"policy": "p3"},
        {"policy": "prophet", "credit_bytes": 50_000},
        {"ordering": "random", "seed": 3},
    ],
    ids=str,
)
def test_mlp(wanted, ordered, options, use_resource):
    before = tasks(ordered)
    arguments = {"steps": STEPS, "use_resource": use_resource}
    got = ordered.call("worker0", "identical.mlp", limit_s=200, options=options, **arguments)
    assert got == wanted("identical.mlp", **arguments)
    # 8 weights and 8 biases a step, and what Adam's updates on one parameter server need from the other.
    assert tasks(ordered) - before >= STEPS * 16


@pytest.mark.parametrize("options", [{}, {"credit_bytes": 1}], ids=str)
def test_control_flow_and_embeddings(wanted, ordered, options):
    before = tasks(ordered)
    scenario = "identical.control_flow_and_embeddings"
    got = ordered.call("worker0", scenario, limit_s=200, options=options, steps=STEPS)
    assert got == wanted(scenario, steps=STEPS)
    assert tasks(ordered) > before
    assert sum(name.startswith("table/part_") for name in got["variables"]) == 2 * 2  # two parts and their slots


def test_resnet50(stock, ordered):
    before = tasks(ordered)
    # At the same time: each is one worker that computes on one core.
    pending = stock.submit("worker0", "identical.resnet50", options=None, steps=STEPS)
    got = ordered.call("worker0", "identical.resnet50", limit_s=280, options={"credit_bytes": 1_000_000}, steps=STEPS)
    result = pending.result(280)
    check(result)
    assert got == result
    assert len(got["variables"]) >= 318  # 214 trained ones and batch normalisation's averages
    # Updated, that is: unchanged they would all be zeros of a handful of sizes.
    assert len({digest for name, digest in got["variables"].items() if "moving_mean" in name}) > 40
    assert tasks(ordered) - before >= STEPS * 200
