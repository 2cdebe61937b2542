"""Workloads from layers, DAGs and traces."""

from __future__ import annotations

import pytest

from tests.simulator.scenes import BPS, layers
from tfsched.ordering import Dag, Op, Resource
from tfsched.ordering.layers import training_dag
from tfsched.simulator import (
    Cluster,
    ComputeOp,
    Method,
    Parameter,
    SimulatorError,
    Workload,
    simulate,
    update_us_per_mb_of_trace,
    workload_of_dag,
    workload_of_trace,
)
from tfsched.tracing import StepTrace

TABLE = layers((1, 2, 30), (4, 5, 0), (7, 8, 90))
WORKER, SERVERS = "/job:worker/replica:0/task:0", [f"/job:ps/replica:0/task:{i}" for i in range(2)]


def test_layers_become_a_chain() -> None:
    workload = Workload.from_layers(TABLE)
    assert [op.name for op in workload.ops] == [
        *("forward/1", "forward/2", "forward/3"),
        *("backward/3", "backward/2", "backward/1"),
    ]
    assert workload.compute_us == 27
    assert workload.parameters == (
        Parameter("1", 30, ("forward/1",), ("backward/1",)),
        Parameter("3", 90, ("forward/3",), ("backward/3",)),
    )
    assert [p.made_by for p in Workload.from_layers(TABLE, "forward").parameters] == [(), ()]


def test_a_training_dag_is_turned_back_into_a_step() -> None:
    workload = workload_of_dag(training_dag(TABLE, BPS))
    assert workload.phase == "train"
    assert [op.name for op in workload.ops] == [op.name for op in Workload.from_layers(TABLE).ops]
    assert {(p.name, p.size_bytes, p.read_by, p.made_by) for p in workload.parameters} == {
        ("push/1", 30, ("forward/1",), ("backward/1",)),
        ("push/3", 90, ("forward/3",), ("backward/3",)),
    }


def dag(*ops: Op) -> Dag:
    return Dag([Resource("c", "compute"), Resource("l", "link", BPS)], ops)


def test_a_push_that_nothing_reads_belongs_to_the_recv_of_its_name() -> None:
    workload = workload_of_dag(
        dag(
            Op("recv/w", "l", (), None, 5),
            Op("f", "c", ("recv/w",), 1.0),
            Op("b", "c", ("f",), 1.0),
            Op("push/w", "l", ("b",), None, 5),
            Op("push/other", "l", ("b",), None, 7),
        )
    )
    assert workload.parameters == (
        Parameter("recv/w", 5, ("f",), ("b",)),
        Parameter("push/other", 7, (), ("b",), pulled=False),
    )


def test_a_transfer_without_bytes_has_what_its_link_carries() -> None:
    workload = workload_of_dag(dag(Op("w", "l", (), 40.0), Op("f", "c", ("w",), 1.0)))
    assert workload.parameters[0].size_bytes == 40


def test_transfers_of_a_link_stay_on_one_server() -> None:
    resources = [Resource("c", "compute"), Resource("a", "link", BPS), Resource("b", "link", BPS)]
    two = Dag(
        resources, [Op("w", "b", (), 1.0), Op("x", "a", (), 1.0), Op("y", "b", (), 1.0), Op("f", "c", ("w", "x"), 1.0)]
    )
    assert [p.server for p in workload_of_dag(two).parameters] == [0, 1, 0]


@pytest.mark.parametrize("barrier", [True, False])
def test_a_value_that_is_asked_for_late(barrier: bool) -> None:
    ops = (ComputeOp("first", 50.0), ComputeOp("second", 10.0, ("first",)))
    workload = Workload(ops, (Parameter("p", 30, ("second",), ("second",), ("first",)),), "train")
    result = simulate(workload, Cluster(bandwidth_bps=BPS, barrier=barrier), Method("m", "fifo", "p3"), iterations=4)
    # Kept: first, pull, second, push. Crossed: push and pull behind each other, while the next step's first op runs.
    assert result.median_us == (50 + 30 + 10 + 30 if barrier else 30 + 30 + 10)


@pytest.mark.parametrize("phase", ["forward", "train"])
def test_transfers_that_wait_for_transfers_are_refused(phase: str) -> None:
    with pytest.raises(SimulatorError, match="waits for"):
        workload_of_dag(dag(Op("a", "l", (), 1.0), Op("b", "l", ("a",), 1.0)), phase)


@pytest.mark.parametrize(
    ("ops", "parameters", "wrong"),
    [
        ((), (), "no ops and no parameters"),
        ((ComputeOp("a", 1.0), ComputeOp("a", 1.0)), (), "given twice"),
        ((ComputeOp("a", 1.0, ("b",)), ComputeOp("b", 1.0)), (), "no op before it"),
        ((ComputeOp("a", -1.0),), (), "time_us of op 'a' is -1.0"),
        ((ComputeOp("a", 1e300),), (), "give times of at most"),
        ((), (Parameter("p", -1),), "has -1 bytes"),
        ((), (Parameter("p", 2**60),), "bytes"),
        ((), (Parameter("p", 1), Parameter("p", 1)), "given twice"),
        ((), (Parameter("p", 1, ("x",)),), "unknown op 'x'"),
    ],
)
def test_a_wrong_workload_is_one_sentence(ops: tuple, parameters: tuple, wrong: str) -> None:
    with pytest.raises(SimulatorError) as caught:
        Workload(ops, parameters)
    assert wrong in str(caught.value)


def test_request_orders_are_drawn_from() -> None:
    parameters = tuple(Parameter(str(i), 10, ("op",)) for i in range(4))
    orders = ((3, 1, 0, 2), (0, 1, 2, 3))
    workload = Workload((ComputeOp("op", 1.0),), parameters, request_orders=orders)
    result = simulate(workload, Cluster(bandwidth_bps=BPS), Method("stock", None, "fifo"), iterations=30, timeline=True)
    seen = set()
    for step in range(30):
        pulls = sorted((s.start_us, s.op) for s in result.events if s.step == step and s.op.startswith("pull"))
        seen.add(tuple(int(name.removeprefix("pull ")) for _, name in pulls))
    assert seen == set(orders)
    with pytest.raises(SimulatorError, match="does not have each of the parameters once"):
        Workload((ComputeOp("op", 1.0),), parameters, request_orders=((0, 0, 1, 2),))


def test_a_step_of_transfers_only_lasts_until_they_have_arrived() -> None:
    workload = Workload((), (Parameter("a", 10), Parameter("b", 20)))
    assert simulate(workload, Cluster(bandwidth_bps=BPS), Method("m", "fifo", "p3"), iterations=1).median_us == 30


def traced(*, train: bool) -> StepTrace:
    """x = read(v0) * read(v1), and where `train` their gradients; v0 on the first server and v1 on the second."""
    nodes = []
    for i, server in enumerate(SERVERS):
        nodes.append([f"v{i}", "VarHandleOp", server, []])
        nodes.append([f"v{i}/read", "ReadVariableOp", server, [f"v{i}"]])
    nodes.append(["x", "Mul", WORKER, ["v0/read", "v1/read"]])
    transfers = [{"name": f"v{i}/read:0@{WORKER}", "link": f"{s}>{WORKER}", "bytes": 100} for i, s in enumerate(SERVERS)]
    if train:
        nodes.append(["g", "Grad", WORKER, ["x"]])
        # The end of the step: a signal of no bytes that the first server's update is applied.
        nodes += [["done", "NoOp", SERVERS[0], ["^apply0"]], ["signal", "Const", SERVERS[0], ["^done", "^g"]]]
        nodes.append(["end", "Identity", WORKER, ["signal"]])
        transfers.append({"name": f"signal:0@{WORKER}", "link": f"{SERVERS[0]}>{WORKER}", "bytes": 0})
        for i, server in enumerate(SERVERS):
            nodes.append([f"scaled{i}", "Mul", server, [f"g:{i}" if i else "g"]])
            nodes.append([f"apply{i}", "ResourceApplyGradientDescent", server, [f"v{i}", "lr", f"scaled{i}"]])
            transfers.append({"name": f"g:{i}@{server}", "link": f"{WORKER}>{server}", "bytes": 100})
    steps = [
        {
            **{"start_us": 0, "end_us": 1000, "sends": []},
            "ops": {name: [10, time_us] for name, _, device, _ in nodes if device == WORKER},
            "transfers": {row["name"]: [0, 50 * (k + 1)] for k, row in enumerate(transfers)},
        }
        for time_us in (20, 5, 7)
    ]
    data = {"format": "tfsched-trace/1", "tensorflow": "", "nodes": nodes, "transfers": transfers, "steps": steps}
    return StepTrace.from_json(data)


def test_a_traced_forward_pass() -> None:
    workload = workload_of_trace(traced(train=False))
    assert (workload.phase, [(op.name, op.time_us) for op in workload.ops]) == ("forward", [("x", 7.0)])
    assert workload.parameters == tuple(Parameter(f"v{i}/read:0@{WORKER}", 100, ("x",), server=i) for i in range(2))


def test_a_traced_training_step_knows_which_gradient_is_whose() -> None:
    workload = workload_of_trace(traced(train=True))
    assert workload.phase == "train"
    assert [(p.name, p.made_by, p.server) for p in workload.parameters] == [
        (f"v{i}/read:0@{WORKER}", ("g",), i) for i in range(2)
    ]
    assert workload_of_trace(traced(train=True), "forward").parameters[0].made_by == ()
    assert sorted(op.name for op in workload.ops) == ["end", "g", "x"]
    result = simulate(workload, Cluster(servers=2, bandwidth_bps=BPS), Method("m", "fifo", "p3"), iterations=1)
    # Both pulls over the worker's link, x, the op that makes both gradients (behind "end" or not), both pushes from then on.
    assert result.median_us in (200 + 7 + 7 + 200, 200 + 7 + 7 + 7 + 200)


def test_op_times_of_a_trace_are_the_median_or_the_least() -> None:
    assert [op.time_us for op in workload_of_trace(traced(train=False), times="least").ops] == [5.0]
    with pytest.raises(SimulatorError, match="times are 'mean'"):
        workload_of_trace(traced(train=False), times="mean")


def test_a_trace_of_stock_tensorflow_carries_its_order() -> None:
    trace = traced(train=False)
    for step in trace.steps:
        step.transfers = {name: (100 - k, 500) for k, name in enumerate(step.transfers)}
    assert set(workload_of_trace(trace).request_orders) == {(1, 0)}
    trace.steps[0].sends = [{"rank": 0}]
    assert len(workload_of_trace(trace).request_orders) == 2


def test_a_trace_tells_how_long_servers_update() -> None:
    trace = traced(train=True)
    assert update_us_per_mb_of_trace(trace) == update_us_per_mb_of_trace(traced(train=False)) == 0.0
    for step, slow in zip(trace.steps, (1, 1, 10), strict=True):
        step.ops.update({"apply0": (500, 30 * slow), "apply1": (500, 50 * slow), "scaled0": (400, 70)})
    assert update_us_per_mb_of_trace(trace) == pytest.approx(80 / 200 * 1e6)  # of medians; 100 bytes each
    for step in trace.steps:
        del step.ops["apply1"]
    assert update_us_per_mb_of_trace(trace) == pytest.approx(30 / 100 * 1e6)


def test_a_trace_without_the_worker_is_one_sentence() -> None:
    with pytest.raises(SimulatorError, match="no transfer to /job:chief"):
        workload_of_trace(traced(train=False), worker="/job:chief")
