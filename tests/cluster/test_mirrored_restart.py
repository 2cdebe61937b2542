"""Workers that all-reduce are ended and started again: training goes on from its backup and ends in the same bits."""

import pytest

from .cluster import STOCK, TFSCHED, Cluster, TaskError, wait_until
from .test_mirrored import everywhere

pytestmark = pytest.mark.timeout(540)
RESTART = "mirrored_restart."
SLOW = {f"worker{number}": {"TFSCHED_EMULATED_BPS": "30e6"} for number in range(2)}
WAYS = pytest.mark.parametrize("options", [{}, {"barrier": False}], ids=["kept", "crossed"])
STEPS = 25


def pair(nursery, stock=False):
    arguments = {"protocol": STOCK} if stock else {"protocol": TFSCHED, "environment": SLOW}
    return Cluster(ps=0, workers=2, nursery=nursery, mirrored=True, **arguments)


@pytest.fixture(scope="module")
def undisturbed(nursery, tmp_path_factory):
    """What stock TensorFlow computes where nobody is ended."""
    directory = str(tmp_path_factory.mktemp("undisturbed"))
    with pair(nursery, stock=True) as cluster:
        fitted = everywhere(cluster, RESTART + "fit", directory=directory)
        looped = everywhere(cluster, RESTART + "train_until_preempted", directory=directory, steps=STEPS)
    return {"fit": fitted[0]["variables"], "loop": looped[0]["variables"]}


def begin_again(cluster):
    """All processes are other ones."""
    for name in cluster.names:
        cluster.kill(name)
    for name in cluster.names:
        cluster.restart(name)


@WAYS
def test_fit_goes_on_from_its_backup(nursery, undisturbed, tmp_path, options):
    arguments = {"directory": str(tmp_path), "options": options}
    with pair(nursery) as cluster:
        first = cluster.submit("worker0", RESTART + "fit", **arguments)
        cluster.submit("worker1", RESTART + "fit", stay_in=[2, 3], **arguments)
        wait_until(lambda: cluster.call("worker1", RESTART + "stays"), 120, "the third epoch")
        cluster.kill("worker1")
        with pytest.raises(TaskError, match="task:1"):
            first.result(60)
        begin_again(cluster)
        for one in everywhere(cluster, RESTART + "fit", **arguments):
            assert one["epochs"] == [2, 3] and one["variables"] == undisturbed["fit"]
        assert cluster.stats("worker0")["packs_scheduled"] > 0


@WAYS
def test_a_worker_that_is_preempted_has_all_save_and_go_on(nursery, undisturbed, tmp_path, options):
    arguments = {"directory": str(tmp_path), "options": options, "steps": STEPS}
    with pair(nursery) as cluster:
        own = {"worker1": {"preempted_at": 3}}
        saved = everywhere(cluster, RESTART + "train_until_preempted", own, pause_s=0.15, **arguments)
        assert saved[0] == saved[1] and saved[0]["variables"] is None and 3 < saved[0]["saved"] < STEPS
        begin_again(cluster)
        for one in everywhere(cluster, RESTART + "train_until_preempted", **arguments):
            assert one["first"] == saved[0]["saved"] and one["variables"] == undisturbed["loop"]
        stats = cluster.stats("worker0")
        assert stats["all_reduces"] > 0 and (stats["background_calls"] > 0) == (options != {})
