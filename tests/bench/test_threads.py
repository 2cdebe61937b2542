"""Threads of a worker: what auto means, and that a server's processes really keep to it."""

import contextlib
import os
import pathlib

import pytest

from tfsched.bench import pinning
from tfsched.bench.cluster import Cluster
from tfsched.bench.errors import BenchError
from tfsched.bench.links import Link
from tfsched.bench.settings import STOCK, TFSCHED
from tfsched.bench.threads import available_cores, describe_threads, resolve_threads


@pytest.mark.parametrize(
    ("cores", "workers", "threads"), [(2, 1, 1), (2, 2, 1), (1, 1, 1), (4, 1, 1), (16, 2, 3), (16, 3, 1)]
)
def test_auto_leaves_half_of_the_cores_to_the_network_and_one_to_the_worker(cores, workers, threads):
    assert resolve_threads("intra_op_threads", "auto", workers, cores) == threads
    assert resolve_threads("inter_op_threads", "auto", workers, cores) == max(2, cores // 2 // workers)


def test_a_number_is_taken_as_it_is():
    assert resolve_threads("inter_op_threads", "3", 2, 2) == 3
    assert resolve_threads("inter_op_threads", 0, 2, 2) == 0
    assert "the default intra-op and 3 inter-op" in describe_threads(
        {"worker_intra_op": 0, "worker_inter_op": 3, "cores": available_cores(), "apart": False}
    )


def ticks_by_thread(pid: int) -> dict[int, int]:
    """CPU time so far of each thread of a process, in clock ticks."""
    ticks = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # threads come and go
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            ticks[int(task.name)] = int(fields[11]) + int(fields[12])
    return ticks


def busy_threads(cluster: Cluster, model: str, batch: int, wanted_ticks: int = 80) -> int:
    """How many threads of worker 0 do the work of computing alone: those with more than a tenth of it."""
    cluster.call(do="build", graph="compute", model=model, phase="forward", batch=batch, seed=0)
    cluster.call(do="open", session="alone", graph="compute", protocol=TFSCHED)
    run = {"do": "run", "session": "alone", "fetch": "step"}
    cluster.call(**run, count=2)
    before = ticks_by_thread(cluster.pid("worker0"))
    for _ in range(500):
        cluster.call(**run, count=5)
        after = ticks_by_thread(cluster.pid("worker0"))
        used = [count - before.get(thread, 0) for thread, count in after.items()]
        if sum(used) >= wanted_ticks:
            return sum(count > sum(used) / 10 for count in used)
    raise AssertionError(f"the worker used only {sum(used)} ticks")


@pytest.mark.parametrize(
    ("intra", "inter", "threads"), [(1, 1, {"toy": 1, "par32": 1}), (2, 1, {"toy": 2}), (1, 2, {"par32": 2})]
)
def test_a_worker_computes_with_as_many_threads_as_it_was_given(intra, inter, threads):
    batches = {"toy": 4096, "par32": 64}
    with Cluster(1, 1, Link("none", None), (STOCK, TFSCHED), intra, inter, timeout_s=90) as cluster:
        assert {model: busy_threads(cluster, model, batches[model]) for model in threads} == threads


@pytest.mark.parametrize(
    ("choice", "intra", "cores", "apart"),
    [
        ("auto", "auto", 2, True),
        ("auto", "auto", 1, False),
        ("auto", 0, 4, False),
        ("apart", 3, 4, True),
        ("shared", "auto", 4, False),
    ],
)
def test_computations_have_cores_of_their_own_where_there_are_two(choice, intra, cores, apart):
    assert pinning.are_apart(choice, intra, range(cores)) is apart


def test_one_core_cannot_be_parted():
    with pytest.raises(BenchError, match="only one core"):
        pinning.are_apart("apart", "auto", [0])
    with pytest.raises(BenchError, match="--cores is 'half'"):
        pinning.are_apart("half", "auto")


@pytest.mark.parametrize(
    ("cores", "network", "computing"), [([0, 1], {0}, {1}), ([4, 2, 7], {2, 4}, {7}), (range(4), {0, 1}, {2, 3})]
)
def test_the_halves_have_no_core_in_common(cores, network, computing):
    assert pinning.halves(cores) == (network, computing)


@pytest.mark.parametrize(
    ("cores", "workers", "expected"),
    [
        ([1], 1, [{1}]),
        ([1], 2, [{1}, {1}]),
        ([2, 3], 1, [{2, 3}]),
        ([3, 2], 2, [{2}, {3}]),
        ([4, 5, 6, 7], 2, [{4, 5}, {6, 7}]),
        ([3, 4, 5], 2, [{3}, {4}]),
        ([3, 4], 3, [{3, 4}] * 3),
    ],
)
def test_workers_have_computing_cores_of_their_own_where_there_are_enough(cores, workers, expected):
    assert pinning.shares(cores, workers) == expected


def test_only_the_threads_that_compute_are_on_the_cores_for_computing():
    network, computing = pinning.halves(os.sched_getaffinity(0))
    with Cluster(1, 1, Link("none", None), (STOCK, TFSCHED), 1, 2, timeout_s=90, apart=True) as cluster:
        busy_threads(cluster, "toy", 512, wanted_ticks=20)
        places = {"ps0": set(), "worker0": set(), "computing": set()}
        for task in ("ps0", "worker0"):
            for thread in pathlib.Path(f"/proc/{cluster.pid(task)}/task").iterdir():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    kind = (
                        "computing" if task == "worker0" and (thread / "comm").read_text().startswith("tf_Compute") else task
                    )
                    places[kind] |= os.sched_getaffinity(int(thread.name))
    assert places == {"ps0": network, "worker0": network, "computing": computing}


def test_the_threads_that_work_in_the_background_of_a_step_are_not_on_the_cores_for_computing():
    network, _ = pinning.halves(os.sched_getaffinity(0))
    with Cluster(1, 1, Link("none", None), (STOCK, TFSCHED), 1, 2, timeout_s=90, apart=True) as cluster:
        cluster.call(do="build", graph="step", model="toy", phase="train", batch=1, seed=0)
        cluster.call(do="open", session="crossing", graph="step", protocol=TFSCHED, options={"barrier": False})
        for _ in range(2):  # the first call starts the threads, the second one pins them
            cluster.call(do="run", session="crossing", fetch="step", count=3)
        places = []
        for thread in pathlib.Path(f"/proc/{cluster.pid('worker0')}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if (thread / "comm").read_text().strip() == "tf_tfsched_back":
                    places.append(os.sched_getaffinity(int(thread.name)))
    assert places and all(place == network for place in places)
