"""What a session does when its options cannot be carried out: strict=True fails with the reason, strict=False warns once."""

import pytest

from .cluster import Cluster, TaskError

pytestmark = pytest.mark.timeout(120)
WARNING = "tfsched steps aside, transfers run unordered"


@pytest.fixture(scope="module")
def cluster(nursery):
    """A cluster with tfsched in every task."""
    with Cluster(nursery=nursery) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def losses(cluster):
    """What the model gives when nothing is asked of the pass."""
    return cluster.call("worker0", "strict.train", options=None, count=4)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ordering": "nope"}, "ordering 'nope' is unknown; known orderings: "),
        ({"ordering": "tao"}, "Ordering 'tao' needs op times and no plan is given"),
    ],
)
def test_strict_fails_the_step_with_the_reason(cluster, losses, options, sentence):
    before = cluster.log("worker0").count(WARNING)
    with pytest.raises(TaskError) as caught:
        cluster.call("worker0", "strict.train", options={**options, "strict": True}, count=1)
    assert caught.value.kind == "InvalidArgumentError"
    message = caught.value.message.replace("\\'", "'")  # stock Assert escapes quotes
    assert f"tfsched: {sentence}" in message
    assert cluster.log("worker0").count(WARNING) == before
    # The cluster is unharmed.
    assert cluster.call("worker0", "strict.train", options={}, count=4) == losses
    assert cluster.wait_idle("ps0")["tasks"] > 0


def test_otherwise_training_goes_on_unordered_with_one_warning(cluster, losses):
    before, warned = cluster.wait_idle("ps0")["tasks"], cluster.log("worker0").count(WARNING)
    for _ in range(2):
        assert cluster.call("worker0", "strict.train", options={"ordering": "nope"}, count=4) == losses
    assert cluster.wait_idle("ps0")["tasks"] == before
    assert cluster.log("worker0").count(WARNING) == warned + 1
    assert "'nope'" in cluster.log("worker0")
