"""What a result says: measures, waits, the critical path, and its files."""

from __future__ import annotations

import json

import pytest

from tests.simulator.scenes import BPS, forward_chain, layers
from tfsched.simulator import Cluster, Method, Segment, Workload, simulate

CLUSTER = Cluster(bandwidth_bps=BPS)
IN_ORDER = Method("in order", "layer", "p3")


def test_measures_of_a_pipeline() -> None:
    result = simulate(forward_chain(3, 10, 20), CLUSTER, IN_ORDER)
    assert (result.upper_us, result.lower_us, result.median_us) == (90, 60, 70)
    assert result.efficiency == pytest.approx(20 / 30)
    assert result.speedup == pytest.approx(30 / 60)
    assert result.utilisation == pytest.approx(
        {
            **{"w0/compute": 30 / 70, "w0 sending": 0, "w0 receiving": 60 / 70},
            **{"ps0 sending": 60 / 70, "ps0 receiving": 0},
        }
    )
    assert result.waits_us == {"1": 20, "2": 10, "3": 10}
    assert result.straggler == 0


def test_the_critical_path_is_named_op_by_op() -> None:
    result = simulate(forward_chain(2, 30, 20), CLUSTER, IN_ORDER, iterations=1, warmup=0)
    assert result.critical_path == [
        Segment("pull 1", "ps0>w0", 0, 20, "the step began"),
        Segment("forward/1", "w0/compute", 20, 50, "waited for pull 1"),
        Segment("forward/2", "w0/compute", 50, 80, "waited for forward/1"),
    ]
    slow = simulate(forward_chain(2, 5, 20), CLUSTER, IN_ORDER, iterations=1, warmup=0)
    assert slow.critical_path[1:] == [
        Segment("pull 2", "ps0>w0", 20, 40, "ps0>w0 was busy with pull 1"),
        Segment("forward/2", "w0/compute", 40, 45, "waited for pull 2"),
    ]


def test_straggler_effect_is_the_papers() -> None:
    workload = Workload.from_layers(layers((50, 50, 0)))
    result = simulate(workload, CLUSTER.replace(workers=2, compute_scale=(1.0, 0.5)), IN_ORDER)
    assert result.straggler == pytest.approx(0.5)  # the fast one waits for 100 of 200 µs
    assert result.median_us == 200


def test_json_is_plain(tmp_path: object) -> None:
    result = simulate(Workload.from_layers(layers((1, 2, 30), (4, 5, 60))), CLUSTER, IN_ORDER)
    data = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert data["method"] == "in order"
    assert data["iteration_us"] == result.iteration_us
    assert data["critical_path"][0]["op"] == result.critical_path[0].op
    assert "events" not in data


def test_perfetto_draws_every_event_once() -> None:
    cluster = CLUSTER.replace(workers=2, servers=2, update_us_per_mb=1e5)
    workload = Workload.from_layers(layers((10, 20, 30), (40, 50, 60)))
    result = simulate(workload, cluster, IN_ORDER, iterations=2, warmup=1, timeline=True)
    drawn = json.loads(json.dumps(result.to_perfetto(), allow_nan=False))["traceEvents"]
    spans = [event for event in drawn if event["ph"] == "X" and "why" not in event["args"]]
    assert sorted((e["name"], e["ts"], e["dur"]) for e in spans) == sorted(
        (e.op, e.start_us, e.end_us - e.start_us) for e in result.events
    )
    processes = [event["args"]["name"] for event in drawn if event["name"] == "process_name"]
    assert processes == ["critical path", "ps0", "ps1", "w0", "w1"]
    threads: dict[tuple[int, int], float] = {}
    for event in sorted((e for e in drawn if e["ph"] == "X"), key=lambda e: (e["pid"], e["tid"], e["ts"])):
        key = (event["pid"], event["tid"])
        assert threads.get(key, 0.0) <= event["ts"] + 1e-6  # spans of a track do not overlap
        threads[key] = event["ts"] + event["dur"]


def test_the_bounds_hold_the_barriers_step() -> None:
    for workers, servers in ((1, 1), (4, 1), (3, 2)):
        cluster = CLUSTER.replace(workers=workers, servers=servers)
        result = simulate(Workload.from_layers(layers((10, 20, 30), (40, 50, 60), (5, 5, 90))), cluster, IN_ORDER)
        assert result.lower_us <= result.median_us + 1e-6
        assert 0 <= result.efficiency <= 1


def test_the_critical_path_adds_up_to_the_step() -> None:
    cluster = CLUSTER.replace(step_overhead_us=7, processing_us_per_mb=1e5, update_us_per_mb=2e5)
    workload = Workload.from_layers(layers((10, 20, 30), (40, 50, 60)))
    result = simulate(workload, cluster, IN_ORDER)
    assert sum(result.critical_us.values()) == pytest.approx(result.median_us)
    # pull 1, forward 1 and 2 (pull 2 comes meanwhile), backward 2 and 1, push 1 behind push 2, its update.
    assert result.critical_us["update"] == 30 * 0.2
    assert result.critical_us["idle"] == pytest.approx(7 + 60 * 0.1 + 30 * 0.1)
