"""What holds on any cluster."""

from __future__ import annotations

import collections
import itertools
import random

import pytest

from tests.simulator.scenes import random_cluster, random_layers, random_method
from tfsched.simulator import Cluster, Result, Workload, simulate


def bytes_of(workload: Workload, *, all_reduces: bool) -> tuple[int, int]:
    pushed = sum(p.size_bytes for p in workload.parameters if p.made_by)
    return 0 if all_reduces else sum(p.size_bytes for p in workload.parameters if p.pulled), pushed


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_random_clusters(first: int) -> None:
    for seed in range(first, first + 50):
        draw = random.Random(seed)
        cluster, method = random_cluster(draw), random_method(draw)
        phase = "train" if cluster.all_reduces else draw.choice(["forward", "train"])
        workload = Workload.from_layers(random_layers(draw), phase)
        arguments = {"iterations": 3, "warmup": 1, "seed": seed, "timeline": True}
        result = simulate(workload, cluster, method, **arguments)
        assert simulate(workload, cluster, method, **arguments) == result  # deterministic
        check_bytes(result, workload, cluster)
        check_order(result, workload, cluster)
        assert all(-1e-9 <= share <= 1 + 1e-9 for share in result.utilisation.values()), seed
        assert all(us >= 0 for us in result.waits_us.values())
        assert 0 <= result.straggler < 1
        check_path(result)


def check_bytes(result: Result, workload: Workload, cluster: Cluster) -> None:
    pulled, pushed = bytes_of(workload, all_reduces=cluster.all_reduces)
    copies = 1 if cluster.all_reduces else cluster.workers
    assert (result.pulled_bytes, result.pushed_bytes) == (4 * pulled * cluster.workers, 4 * pushed * copies)


def check_order(result: Result, workload: Workload, cluster: Cluster) -> None:
    """No op before its inputs and tensors, no connection with two messages, no stream with two ops."""
    ends: dict[tuple[str, str, int], float] = {}
    arrived: dict[tuple[str, str, int], float] = collections.defaultdict(float)
    at_once: dict[str, list[tuple[float, int]]] = collections.defaultdict(list)
    for span in result.events:
        at_once[span.resource] += [(span.start_us, 1), (span.end_us, -1)]
        if span.resource.endswith("/compute"):
            ends[(span.resource.partition("/")[0], span.op, span.step)] = span.end_us
        elif span.op.startswith("pull "):
            key = (span.resource.partition(">")[2], span.op[5:].partition("#")[0], span.step)
            arrived[key] = max(arrived[key], span.end_us)
    for span in result.events:
        worker, _, kind = span.resource.partition("/")
        if kind != "compute" or span.op not in workload.index:
            continue
        for name in workload.ops[workload.index[span.op]].inputs:
            assert ends[(worker, name, span.step)] <= span.start_us + 1e-6
        for parameter in workload.parameters:
            if span.op in parameter.read_by and cluster.architecture == "ps":
                assert arrived[(worker, parameter.name, span.step)] <= span.start_us + 1e-6
    for resource, changes in at_once.items():
        most = cluster.streams if resource.endswith("/compute") else 10**9 if resource.endswith("/update") else 1
        running = 0
        for _, change in sorted(changes):  # at one moment ends come before starts
            running += change
            assert running <= most, resource


def check_path(result: Result) -> None:
    times = [(segment.start_us, segment.end_us) for segment in result.critical_path]
    assert all(end <= start + 1e-6 for (_, end), (start, _) in itertools.pairwise(times))
    assert all(segment.why for segment in result.critical_path)
