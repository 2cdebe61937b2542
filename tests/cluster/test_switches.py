"""tfsched.enable, options and function: which calls they reach, on which thread, and what they leave as it was."""

import pytest

from .cluster import Cluster

pytestmark = pytest.mark.timeout(300)
MODEL = 8  # variables that a step reads
OPTIMIZER = 1  # rewriter_config_pb2.RewriterConfig.ON


@pytest.fixture(scope="module")
def cluster(nursery):
    with Cluster(nursery=nursery, coordinator=True) as cluster:
        yield cluster


def test_what_is_reached(cluster):
    seen = cluster.call("chief0", "switches.reach", enable_first=False, limit_s=120)
    stock = {"not enabled", "none, within enabled", "none again", "disabled", "another thread, beside a block"}
    assert {name for name, ordered in seen.items() if ordered == 0} == stock
    assert seen.pop("a decorated method, twice") == 2 * MODEL
    assert {ordered for name, ordered in seen.items() if name not in stock} == {MODEL}


def test_before_the_context_exists_and_in_a_coordinator_that_comes_back(cluster):
    cluster.kill("chief0")
    cluster.restart("chief0")
    assert cluster.call("chief0", "switches.reach", enable_first=True) == {"enabled before the context": MODEL}


def test_what_needs_nothing_stays_as_it_is(cluster):
    found = cluster.call("chief0", "switches.untouched")
    assert found == {
        "same graph": True,
        "same value": True,
        "left in the user's config": [],
        "folding": OPTIMIZER,
        "in another executor": 3.0,
        "outstanding": 0,
    }


def test_mistakes_are_one_sentence(cluster):
    said = cluster.call("chief0", "switches.mistakes")
    assert "give a tfsched.Options" in said["enable"] and "give a tfsched.Options" in said["function"]
    assert "'policies' is not an option" in said["options"]
    assert "has the jobs ps" in said["resolver"] and "has the tasks [0]" in said["task_id"]
    assert "/job:ps/task:7 cannot be read" in said["stats"]
    assert "seconds above 0" in said["drain"]
    assert all(text.count("\n") == 0 for text in said.values())
