"""Graphs of every kind: the same numbers as on a stock cluster, ordered where they should be, and nothing left over."""

import shutil

import pytest

from .cluster import STOCK, Cluster, wait_until

pytestmark = pytest.mark.timeout(180)
SIZE = {"ps": 2, "workers": 2}
ORDERED = {"credit_bytes": 1}


@pytest.fixture(scope="module")
def stock(nursery):
    """A cluster without tfsched."""
    with Cluster(nursery=nursery, protocol=STOCK, **SIZE) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def ordered(nursery):
    """A cluster with tfsched in every task."""
    with Cluster(nursery=nursery, **SIZE) as cluster:
        yield cluster


def tasks(cluster):
    """How many ordered transfers have left each parameter server."""
    return [cluster.wait_idle(name)["tasks"] for name in ("ps0", "ps1")]


def compare(stock, ordered, scenario, least, options=ORDERED, **arguments):
    """Runs a scenario on both; the numbers must agree, and ``least`` ordered transfers leave each parameter server."""
    before = tasks(ordered)
    pending = stock.submit("worker0", scenario, options=None, **arguments)
    got = ordered.call("worker0", scenario, options=options, **arguments)
    wanted = pending.result()
    assert got == wanted
    assert len(wanted) > 1
    moved = [now - then for now, then in zip(tasks(ordered), before, strict=True)]
    assert all(count >= minimum for count, minimum in zip(moved, least, strict=True)), moved
    return moved


def test_in_graph_replication(stock, ordered):
    # 6 variables in turn, 2 workers, 6 steps.
    assert compare(stock, ordered, "graphs.in_graph", [36, 36]) == [36, 36]


def test_functions(stock, ordered):
    # What the functions read themselves is sent by their own executors, unordered; w3 and w4 are read in the step's graph.
    compare(stock, ordered, "graphs.functions", [5, 5])


@pytest.mark.parametrize("version", [1, 2])
def test_branches_that_alternate(stock, ordered, version):
    compare(stock, ordered, "graphs.branches", [12, 12], version=version)


@pytest.mark.parametrize("version", [1, 2])
def test_loops(stock, ordered, version):
    compare(stock, ordered, "graphs.loops", [6, 6], version=version)


def test_strings_handles_and_other_types(stock, ordered):
    compare(stock, ordered, "graphs.edges", [4, 0])


def test_feeds_and_fetches_that_change(stock, ordered):
    compare(stock, ordered, "graphs.feeds_and_fetches", [20, 20])


def test_forward_and_training_steps_by_turns(stock, ordered):
    assert compare(stock, ordered, "graphs.partial_runs", [12, 12]) == [12, 12]


def test_monitored_training_session(stock, ordered, tmp_path):
    before = tasks(ordered)
    results = []
    for cluster, options in ((stock, None), (ordered, ORDERED)):
        directory = tmp_path / cluster.protocol_of("ps0")
        directory.mkdir()
        results.append(cluster.call("worker0", "graphs.monitored", options=options, directory=str(directory)))
        shutil.rmtree(directory)
    assert results[0] == results[1]
    assert len(results[0]) == 12
    moved = [now - then for now, then in zip(tasks(ordered), before, strict=True)]
    assert min(moved) >= 2 * 12


def test_between_graph_replication(stock, ordered):
    losses = []
    for cluster, options in ((stock, None), (ordered, ORDERED)):
        for index in range(2):
            name, filters = f"worker{index}", ["/job:ps", f"/job:worker/task:{index}"]
            cluster.call(name, "common.open_session", options=options, filters=filters, init=index == 0)
        # By turns, so that the numbers are the same every time ...
        losses.append([cluster.call(f"worker{number % 2}", "common.run") for number in range(6)])
        # ... and at once.
        both = [cluster.submit(f"worker{index}", "common.run", count=15) for index in range(2)]
        for pending in both:
            assert len(pending.result()) == 15
        assert cluster.call("worker0", "common.run", fetch="steps") == [float(36).hex()]
        for index in range(2):
            cluster.call(f"worker{index}", "common.close_session")
    assert losses[0] == losses[1]
    assert len({loss for (loss,) in losses[0]}) == 6
    for name in ("ps0", "ps1"):
        ordered.wait_idle(name)
    receivers = {one["to"] for one in ordered.call("ps0", "common.transfers") if one["rank"] >= 0}
    assert receivers == {"/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"}
    assert wait_until(lambda: ordered.stats("ps0")["groups"] == 0, 10, "no group left")
