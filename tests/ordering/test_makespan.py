"""The list schedule is a valid, deterministic schedule between the bounds."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfsched.ordering import Dag, DagError, list_schedule, lower_bound_us, upper_bound_us

from .dags import build, chain, figure_4b, random_dags


@settings(max_examples=150, deadline=None)
@given(random_dags(times_us=st.integers(0, 9).map(float)), st.data())
def test_schedule_is_valid_and_greedy(dag: Dag, data: st.DataObject) -> None:
    priorities = {op.name: data.draw(st.integers(-2, 2)) for op in dag.recvs}
    schedule = list_schedule(dag, priorities)
    times_us = dag.times_us()
    start, end = schedule.start_us, schedule.end_us
    assert schedule.makespan_us == max(end.values())
    assert lower_bound_us(dag) <= schedule.makespan_us <= upper_bound_us(dag)
    ready = {op.name: max((end[i] for i in op.inputs), default=0.0) for op in dag.ops}
    for op, time_us in zip(dag.ops, times_us, strict=True):
        assert end[op.name] - start[op.name] == time_us
        assert start[op.name] >= ready[op.name]
    for resource in dag.resources:
        queue = [op for op in dag.ops if op.resource == resource and end[op.name] > start[op.name]]
        queue.sort(key=lambda op: start[op.name])
        for first, second in itertools.pairwise(queue):
            assert end[first.name] <= start[second.name]
        for i, op in enumerate(queue):
            # It starts when it is ready or when its predecessor ends: never idle with work at hand.
            freed = end[queue[i - 1].name] if i else 0.0
            assert start[op.name] <= max(min(ready[o.name] for o in queue[i:]), freed)
            if op.name in priorities:
                for later in queue[i + 1 :]:
                    if ready[later.name] < start[op.name]:
                        assert priorities[op.name] <= priorities[later.name]


def test_worked_example() -> None:
    # A and B (3 us each) activate op1 (2), then C, op2, D, op3.
    schedule = list_schedule(figure_4b(), {"A": 0, "B": 1, "C": 2, "D": 3})
    assert schedule.end_us == {
        "A": 3.0, "B": 6.0, "C": 9.0, "D": 12.0, "op1": 8.0, "op2": 11.0, "op3": 14.0
    }  # fmt: skip
    assert schedule.makespan_us == 14.0
    assert list_schedule(figure_4b(), {"A": 3, "B": 2, "C": 1, "D": 0}).makespan_us == 18.0


def test_recvs_without_priority_come_last_in_file_order() -> None:
    dag = build(("x", "0", 1, ""), ("y", "0", 1, ""), ("z", "0", 1, ""))
    assert list_schedule(dag, {"z": 5}).start_us == {"x": 1.0, "y": 2.0, "z": 0.0}
    assert list_schedule(dag).start_us == {"x": 0.0, "y": 1.0, "z": 2.0}


def test_compute_runs_by_topological_position() -> None:
    # early and other are ready when r ends; late, ready after early, precedes other in the order.
    dag = build(
        ("late", "cpu", 1, "early"), ("r", "0", 1, ""), ("early", "cpu", 1, "r"),
        ("other", "cpu", 1, "r"),
    )  # fmt: skip
    assert list_schedule(dag).start_us == {"r": 0.0, "early": 1.0, "late": 2.0, "other": 3.0}


def test_links_run_in_parallel_and_times_can_be_replaced() -> None:
    dag = build(("x", "0", 4, ""), ("y", "1", 3, ""), ("c", "cpu", 1, "x y"), links=2)
    assert list_schedule(dag).makespan_us == 5.0
    assert list_schedule(dag, times_us={"y": 10.0}).makespan_us == 11.0


def test_ops_that_end_together_end_before_the_next_choice() -> None:
    # y (better) becomes ready at the moment x0 ends: it must win over x1.
    dag = build(
        ("x0", "0", 2, ""), ("x1", "0", 2, ""), ("c", "cpu", 2, ""), ("y", "0", 2, "c")
    )  # fmt: skip
    assert list_schedule(dag, {"x0": 0, "x1": 2, "y": 1}).start_us["y"] == 2.0


@pytest.mark.parametrize("value", [float("nan"), "1", None])
def test_bad_priorities_are_named(value: object) -> None:
    with pytest.raises(DagError, match=r"the priority of recv op 'recv0' is .*; give a number"):
        list_schedule(chain(1), {"recv0": value})  # type: ignore[dict-item]


def test_work_grows_with_the_dag_not_its_square() -> None:
    dag = chain(10_000)
    start_s = time.process_time()
    assert list_schedule(dag).makespan_us == 100_010.0
    assert time.process_time() - start_s < 5  # about 0.1 s
