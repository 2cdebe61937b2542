"""Op times, service times and bounds of one step, from step_stats laid out by hand."""

from types import SimpleNamespace

import pytest

from tfsched.bench.op_times import busy_time, sample_of_step, service_times

WORKER = "/job:worker/replica:0/task:0"
PS = "/job:ps/replica:0/task:0"


def node(name, begin_us, end_us, label=None):
    return SimpleNamespace(
        node_name=name,
        timeline_label=label or f"{name} = MatMul(a, b)",
        all_start_micros=begin_us,
        op_start_rel_micros=0,
        op_end_rel_micros=end_us - begin_us,
    )


def transfer(source, target, begin_us, end_us):
    label = f"[4.0MB] [9Mb/s] edge_1_x from {source}/device:CPU:0 to {target}/device:CPU:0"
    return node("RecvTensor", begin_us, end_us, label)


def device(task, *nodes):
    return SimpleNamespace(device=f"{task}/device:CPU:0", node_stats=list(nodes))


def test_service_is_counted_once_where_requests_overlap():
    assert service_times([(0, 30), (0, 10), (0, 20), (50, 60)]) == [10, 10, 10, 10]


def test_service_of_no_transfer():
    assert service_times([]) == []


def test_sample_of_one_step():
    stats = SimpleNamespace(
        dev_stats=[
            device(
                WORKER,
                transfer(PS, WORKER, 1000, 2000),
                transfer(PS, WORKER, 1000, 3000),
                node("dense", 2000, 2600),
                node("recv", 1000, 3000, "x = _Recv()"),
                node("dense2", 3000, 3600),
            ),
            device(PS, node("apply", 0, 9000), transfer(WORKER, PS, 3600, 4000)),
            device("/job:worker/replica:0/task:1", node("dense", 0, 9000)),
        ]
    )
    sample = sample_of_step(stats, WORKER)
    assert sample.makespan_s == pytest.approx(3e-3)
    assert sample.compute_s == pytest.approx(1.2e-3)
    assert sample.links_s == pytest.approx({"in": 2e-3, "out": 0.4e-3})
    assert sample.upper_s == pytest.approx(3.6e-3)
    assert sample.lower_s == pytest.approx(2e-3)
    assert sample.efficiency == pytest.approx(0.6 / 1.6)


def test_trace_without_the_worker():
    with pytest.raises(ValueError, match="no operation of"):
        sample_of_step(SimpleNamespace(dev_stats=[device(PS, node("apply", 0, 1))]), WORKER)


def test_busy_time_counts_what_runs_at_once_only_once():
    assert busy_time([]) == 0
    assert busy_time([(0, 10), (2, 5), (8, 12), (20, 21)]) == 13
    assert busy_time([(3, 4), (0, 1)]) == 2
