"""The programs behind docs/papers.md: what they add to the simulator's commands."""

import sys

import pytest

from tfsched.ordering import Dag, Op, Resource, get, load_plugin, registry
from tfsched.ordering.layers import Layer, LayerTable
from tfsched.simulator import Cluster, Method, Workload, methods, simulate

from .test_benchmarks import BENCHMARKS, load


@pytest.fixture(scope="module", autouse=True)
def importable():
    sys.path.insert(0, str(BENCHMARKS))
    yield
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def horovod(monkeypatch):
    """The plugin, registered for one test only."""
    monkeypatch.setattr(registry, "_orderings", dict(registry._orderings))
    monkeypatch.setattr(registry, "_plugins", {})
    load_plugin(str(BENCHMARKS / "evaluations" / "horovod.py"))
    return get("horovod")


def test_horovod_fuses_what_is_ready_in_a_cycle_up_to_the_size_of_its_buffer(horovod):
    mib = 2**20
    ready_ms = {"a": 1, "b": 2, "c": 4, "d": 5, "e": 6, "f": 17}
    sizes = {"a": 40 * mib, "b": 20 * mib, "c": 10 * mib, "d": 100 * mib, "e": mib, "f": mib}
    ops = []
    for name, ms in ready_ms.items():
        ops.append(Op(f"make {name}", f"device {name}", (), ms * 1000.0))
        ops.append(Op(name, "link", (f"make {name}",), None, sizes[name]))
    resources = [Resource("link", "link", 1e9)] + [Resource(f"device {name}", "compute") for name in ready_ms]
    decision = horovod(Dag(resources, ops))
    found = [(message.not_before_us, [part.recv for part in message.parts]) for message in decision.messages]
    assert found == [(5000, ["a", "b"]), (5000, ["c"]), (5000, ["d"]), (10000, ["e"]), (20000, ["f"])]
    assert decision["a"] < decision["c"] < decision["f"]


def test_horovod_holds_a_lone_gradient_until_its_cycle_ends(horovod):
    workload = Workload.from_layers(LayerTable([Layer("one", 1000.0, 3000.0, 1_000_000)]))
    ring = Cluster(workers=2, architecture="ring", bandwidth_bps=8e9, barrier=False)
    at_once = simulate(workload, ring, Method("fifo", "fifo", "fifo")).median_us
    assert simulate(workload, ring, methods()["horovod"]).median_us == pytest.approx(at_once + 2000)


def test_mxnet_cuts_what_is_larger_than_a_million_parameters_over_all_servers():
    from evaluations.common import as_mxnet_cuts

    table = LayerTable([Layer("small", 1.0, 2.0, 4_000_000), Layer("large", 3.0, 4.0, 40_000_000)])
    cut = as_mxnet_cuts(table, 4)
    assert [row.parameter_bytes for row in cut] == [4_000_000, *[10_000_000] * 4]
    assert (cut.forward_us, cut.backward_us) == (table.forward_us, table.backward_us)


def test_stepwise_gradients_come_at_the_end_of_their_blocks_computation():
    from evaluations.prophet import stepwise

    table = LayerTable([Layer(str(i), 1.0, float(i + 1), 8) for i in range(5)])
    rows = list(stepwise(table, (3, 1)))
    assert [row.backward_us for row in rows] == [1.0, 0.0, 2.0 + 3.0, 0.0, 4.0 + 5.0]


def test_waits_and_times_of_gradients_are_those_of_a_chain_by_hand():
    from evaluations.prophet_time import means

    # One byte takes one microsecond. Gradient 2 is made at 2 and gradient 1 at 4; both ways are free for each.
    workload = Workload.from_layers(LayerTable([Layer("1", 0.0, 2.0, 10), Layer("2", 0.0, 2.0, 30)]))
    cluster = Cluster(bandwidth_bps=8e6, barrier=False)
    wait_ms, push_ms, both_ms = means(workload, cluster, Method("fifo", "fifo", "fifo"))
    # 2 is pushed from 2 to 32 and pulled until 62; 1 waits for it until 32, is pushed until 42 and pulled from 62 to 72.
    assert (wait_ms * 1e3, push_ms * 1e3, both_ms * 1e3) == pytest.approx(((0 + 28) / 2, (30 + 10) / 2, (60 + 40) / 2))


def test_a_transfer_is_in_wrong_order_if_it_overtook_one():
    in_wrong_order = load("wire_order").in_wrong_order
    handed = {"b": (2, 0), "a": (1, 0), "d": (3, 2), "c": (3, 1), "never arrived": (5, 0)}
    assert in_wrong_order(handed, {"a": 10, "b": 20, "c": 30, "d": 40}) == {}
    assert in_wrong_order(handed, {"a": 10, "b": 35, "c": 30, "d": 33}) == {"c": 5, "d": 2}
