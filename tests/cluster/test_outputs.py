"""Functions whose inputs and outputs are on several tasks, in a program that serves these tasks itself."""

import pytest

from .cluster import Cluster

pytestmark = pytest.mark.timeout(300)
TASKS = ("/job:localhost/replica:0/task:0", "/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1")


def wanted():
    """What stock TensorFlow gives: an output is where the program has put what makes it, or on the calling task."""
    rows = []
    looks = ("backing_device", "device", "shape", "numpy")
    pairs = [(caller, owner) for caller in TASKS for owner in TASKS if caller == TASKS[0] or owner != TASKS[0]]
    for number, (caller, owner, look) in enumerate((*pair, look) for pair in pairs for look in looks):
        values = [[10 + number, 20], [10 + number, 20 + number]]
        for index, place in enumerate((caller, owner)):
            device = f"{place}/device:CPU:0"
            found = {"backing_device": device, "device": device, "shape": [2], "numpy": values[index]}[look]
            rows.append([caller, owner, look, index, found, values[index]])
    return rows


@pytest.mark.parametrize("options", [None, {}, {"barrier": False}, {"policy": "p3"}], ids=["off", "on", "crossing", "p3"])
def test_inputs_and_outputs_everywhere(nursery, options):
    # Python's lock is held by who asks for a tensor's device or shape, and the pass of a task in the same process needs it.
    with Cluster(nursery=nursery, ps=0, workers=0, coordinator=True) as cluster:
        assert cluster.call("chief0", "outputs.everywhere", options=options, limit_s=60) == wanted()


@pytest.mark.parametrize("options", [{}, {"barrier": False}], ids=["ordered", "crossing"])
def test_the_seed_is_set_while_functions_run(nursery, options):
    # To set it waits for every thread's functions, and holds Python's lock, too.
    with Cluster(nursery=nursery, ps=0, workers=0, coordinator=True) as cluster:
        result = cluster.call("chief0", "outputs.seeds", options=options, limit_s=60)
    assert result["values"] == [[[10 + number, 20], [10 + number, 20 + number]] for number in range(20)]
    assert result["seeds"] > 1


def test_a_task_that_has_been_joined_under_another_name_sends_what_it_is_asked_for(nursery):
    with Cluster(nursery=nursery, ps=0, workers=0, coordinator=True) as cluster:
        assert cluster.call("chief0", "outputs.renamed", times=16, limit_s=60) == [["A", "B"]] * 16
