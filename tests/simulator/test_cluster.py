"""Descriptions of clusters: files, errors, hosts and stragglers."""

from __future__ import annotations

import pathlib
import random

import numpy as np
import pytest

from tests.simulator.scenes import random_cluster
from tfsched.simulator import Cluster, SimulatorError


def test_yaml_round_trip(tmp_path: pathlib.Path) -> None:
    for seed in range(30):
        cluster = random_cluster(random.Random(seed))
        path = tmp_path / f"{seed}.yaml"
        path.write_text(cluster.to_yaml())
        assert Cluster.from_yaml(str(path)) == cluster
    cluster = Cluster(workers=2, compute_scale=(1.0, 0.5), worker_bandwidth_bps=(1e9, 5e8))
    path.write_text(cluster.to_yaml())
    assert Cluster.from_yaml(str(path)) == cluster


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("workers: 0", "workers is 0"),
        ("workers: true", "workers is True"),
        ("workers: 1000000", "workers is 1000000"),
        ("servers: two", "servers is 'two'"),
        ("bandwidth_bps: 0", "bandwidth_bps is 0"),
        ("bandwidth_bps: .nan", "bandwidth_bps is nan"),
        ("bandwidth_bps: 1e-300", "bandwidth_bps is"),
        ("startup_us: -1", "startup_us is -1"),
        ("startup_us: .inf", "startup_us is inf"),
        ("architecture: mesh", "architecture is 'mesh'"),
        ("architecture: [ps]", "architecture is ['ps']"),
        ("straggler: sometimes", "straggler is 'sometimes'"),
        ("barrier: 1", "barrier is 1"),
        ("architecture: ring\nsynchronous: false", "synchronous is false"),
        ("compute_scale: [1, 2]", "compute_scale has 2 speeds for 1 workers"),
        ("compute_scale: 0", "compute_scale is 0"),
        ("worker_bandwidth_bps: [1e9, 2e9]", "worker_bandwidth_bps has 2 numbers for 1 workers"),
        ("worker_bandwidth_bps: 5", "worker_bandwidth_bps is 5 for 1 workers"),
        ("worker_bandwidth_bps: [0]", "worker_bandwidth_bps is 0"),
        ("workers: 2\ntasks_per_host: 2\nworker_bandwidth_bps: [1000000000, 2]", "workers 0 and 1 share a host"),
        ("compute_scale: 1e300", "compute_scale is"),
        ("wokers: 2", "unknown key 'wokers'"),
        ("1: 2", "unknown key 1"),
        ("- 1", "give a mapping"),
        ("", "give a mapping"),
        ("a: [", "is not YAML"),
        ("a: &x [1]\nb: *x", "uses a YAML alias"),
        ("!!python/object/apply:os.system ['true']", "is not YAML"),
        ("workers: 2001-13-45", "cannot be read as YAML"),
        ("[" * 5000, "nested more than 20 deep"),
        ("a: \x00", "is not YAML"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: pathlib.Path, text: str, wrong: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(SimulatorError) as caught:
        Cluster.from_yaml(str(path))
    assert wrong in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_sentence(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SimulatorError, match=r"cannot be read .*check the path"):
        Cluster.from_yaml(str(tmp_path / "none.yaml"))
    (tmp_path / "latin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SimulatorError, match="not UTF-8"):
        Cluster.from_yaml(str(tmp_path / "latin"))


def test_replace_refuses_what_is_no_field() -> None:
    with pytest.raises(SimulatorError, match="has no 'bandwidth'"):
        Cluster().replace(bandwidth=1)


def test_hosts() -> None:
    assert Cluster(workers=3, servers=2).hosts() == ([0, 1, 2], [3, 4], [1e9] * 5)
    assert Cluster(workers=3, servers=2, tasks_per_host=2).hosts()[:2] == ([0, 0, 1], [2, 2])
    assert Cluster(workers=2, servers=3, colocated=True).hosts()[:2] == ([0, 1], [0, 1, 0])
    assert Cluster(workers=1, servers=1, server_bandwidth_bps=5e9).hosts()[2] == [1e9, 5e9]
    assert Cluster(workers=2, architecture="ring").hosts()[:2] == ([0, 1], [])
    slow = Cluster(workers=2, worker_bandwidth_bps=(1e9, 5e8))
    assert slow.hosts()[2] == [1e9, 5e8, 1e9]
    assert slow.worker_bps() == 5e8
    assert slow.replace(colocated=True, server_bandwidth_bps=2e9).hosts()[2] == [2e9, 5e8]


@pytest.mark.parametrize(
    ("straggler", "mean", "deviation"), [("normal", 1.0, 0.2), ("exponential", 1.2, 0.2), ("pareto", 1.0 + 0.2 / 1.5, None)]
)
def test_stragglers_follow_their_distribution(straggler: str, mean: float, deviation: float | None) -> None:
    cluster = Cluster(workers=100, straggler=straggler, straggler_scale=0.2)
    factors = cluster.compute_factors(400, seed=3)
    assert factors.mean() == pytest.approx(mean, rel=0.01)
    if deviation is not None:
        assert factors.std() == pytest.approx(deviation, rel=0.03)
    assert (factors > 0).all()
    assert np.array_equal(factors, cluster.compute_factors(400, seed=3))
    assert not np.array_equal(factors, cluster.compute_factors(400, seed=4))


def test_speed_divides_times() -> None:
    assert (Cluster(workers=2, compute_scale=(1.0, 4.0)).compute_factors(3, 0) == [[1.0, 0.25]] * 3).all()
