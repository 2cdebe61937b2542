"""Forked tasks are as good as started ones: they share no random number, die alone, and end with their nursery."""

import concurrent.futures
import os
import pathlib
import signal
import subprocess

import pytest

from .cluster import STOCK, Cluster, TaskDied, task_environment, wait_until
from .nurseries import Nursery

pytestmark = pytest.mark.timeout(200)


def drawn(cluster, name):
    return cluster.call(name, "breaking.drawn")


def test_forks_have_drawn_no_random_number_in_common(nursery):
    """TensorFlow tells a restarted task by the random incarnation of its devices."""
    with Cluster(workers=2, nursery=nursery) as cluster:
        seen = [drawn(cluster, name) for name in cluster.names]
        for _ in range(3):
            cluster.kill("worker1")
            cluster.restart("worker1")
            seen.append(drawn(cluster, "worker1"))
    for what in seen[0]:
        assert len({one[what] for one in seen}) == len(seen), what


def test_stock_tasks_are_without_the_library(nursery):
    with Cluster(nursery=nursery, protocols={"ps0": STOCK}) as cluster:
        loaded = {name: pathlib.Path(f"/proc/{cluster.pid(name)}/maps").read_text() for name in cluster.names}
    library = pathlib.Path(os.environ.get("TFSCHED_LIBRARY", "libtfsched.so")).name
    assert library in loaded["worker0"] and library not in loaded["ps0"]
    assert all("libtensorflow_framework" in one for one in loaded.values())


def test_what_comes_too_late_for_a_fork_is_said(nursery):
    with (
        pytest.raises(AssertionError, match=r"TF_ENABLE_ONEDNN_OPTS.* too late"),
        Cluster(nursery=nursery, environment={"worker0": {"TF_ENABLE_ONEDNN_OPTS": "1"}}),
    ):
        pass


def test_an_environment_of_their_own(nursery):
    with Cluster(nursery=nursery, environment={"worker0": {"TFSCHED_EMULATED_BPS": "1e9"}}) as cluster:
        assert cluster.stats("worker0")["emulated"] == 1
        assert cluster.stats("ps0")["emulated"] == 0


def test_ends_are_told(nursery):
    with Cluster(nursery=nursery) as cluster:
        pending = cluster.submit("worker0", "breaking.sleep")
        cluster.kill("worker0")
        with pytest.raises(TaskDied):
            pending.result(20)
        cluster.restart("worker0")
        assert cluster.leave("worker0") == 0
        assert not cluster.alive("worker0")
        with pytest.raises(subprocess.TimeoutExpired):
            cluster._processes["ps0"].popen.wait(0.1)
        assert cluster.alive("ps0")


def test_two_threads_may_fork_at_once(nursery):
    """Each gets its own task's number and end, not the other's."""

    def fork(_):
        with Cluster(ps=1, workers=0, nursery=nursery) as cluster:
            for _ in range(4):
                assert cluster.call("ps0", "breaking.pid") == cluster.pid("ps0")
                cluster.kill("ps0")
                cluster.restart("ps0")

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(fork, range(4)))


def test_no_task_outlives_its_nursery():
    with Nursery(task_environment()) as nursery, Cluster(nursery=nursery) as cluster:
        pids = [cluster.pid(name) for name in cluster.names]
        os.kill(nursery.pid, signal.SIGKILL)
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), 20, "the tasks' end")
