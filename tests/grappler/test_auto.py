"""What "auto" stands for: the graphs it gives are those of the policy and the pieces that the documentation names."""

import json
import types

import pytest
import tensorflow as tf
import test_barrier
import test_collectives
from graphs import canonical, copy
from test_barrier import PS0, PS1, WORKER, WORKER2
from test_partition import sized_graph

import tfsched
from tfsched import TfschedError
from tfsched._options import AUTO_BYTES, Options
from tfsched.bench.settings import find_settings
from tfsched.bench.simulated import method_of
from tfsched.eager.config import Setting
from tfsched.grappler.reading.graph import task_of
from tfsched.grappler.rewrite import rewrite
from tfsched.online import first
from tfsched.ops.configure import GRAPH
from tfsched.ordering.plan import Plan


@pytest.fixture(autouse=True, scope="module")
def _library():
    tfsched.load()


@pytest.mark.parametrize(
    ("given", "policy", "partition_bytes"),
    [
        ({}, "tictac", 0),
        ({"barrier": False}, "bytescheduler", 500_000),
        ({"policy": "p3"}, "p3", 0),
        ({"policy": "p3", "barrier": False}, "p3", 500_000),
        ({"policy": "tictac", "barrier": False}, "tictac", 0),
        ({"policy": "fifo", "barrier": False}, "fifo", 0),
        ({"partition_bytes": 8192}, "tictac", 8192),
        ({"partition_bytes": 0, "barrier": False}, "bytescheduler", 0),
        ({"policy": "auto", "partition_bytes": "auto", "barrier": False}, "bytescheduler", 500_000),
    ],
)
def test_auto_stands_for_a_policy_and_a_size(given, policy, partition_bytes):
    options = Options(seed=5, **given)
    settled = options.settled()
    assert (settled.policy, settled.partition_bytes) == (policy, partition_bytes)
    assert (settled.seed, settled.barrier) == (5, options.barrier) and settled.settled() == settled
    assert Options.from_parameters(options.to_parameters()) == options


def test_the_log_and_the_environment_say_auto(monkeypatch):
    monkeypatch.setenv("TFSCHED_PARTITION_BYTES", "auto")
    monkeypatch.setenv("TFSCHED_POLICY", "auto")
    options = Options(barrier=False)
    assert options.partition_bytes == AUTO_BYTES and options.settled().partition_bytes == 500_000
    assert "policy=auto (TFSCHED_POLICY)" in options.describe()
    assert "partition_bytes=auto (TFSCHED_PARTITION_BYTES)" in options.describe()
    monkeypatch.setenv("TFSCHED_CREDIT_BYTES", "auto")
    assert "credit_bytes=auto (TFSCHED_CREDIT_BYTES)" in Options().describe()
    monkeypatch.setenv("TFSCHED_CREDIT_BYTES", "many")
    with pytest.raises(TfschedError, match="TFSCHED_CREDIT_BYTES is 'many'; give a whole number or \"auto\""):
        Options()
    monkeypatch.delenv("TFSCHED_CREDIT_BYTES")
    with pytest.raises(TfschedError, match='Option credit_bytes is -2; give "auto", 0'):
        Options(credit_bytes=-2)
    with pytest.raises(TfschedError, match="seed is 'auto'; give a value of type int"):
        Options(seed="auto")


@pytest.mark.parametrize(
    ("megabits", "partition_bytes", "credit_bytes"),
    [
        (0, 500_000, 1_000_000),
        (100, 250_000, 250_000),
        (699, 250_000, 250_000),
        (700, 500_000, 500_000),
        (1_000, 500_000, 500_000),
        (2_000, 1_000_000, 2_000_000),
        (7_999, 1_000_000, 2_000_000),
        (8_000, 4_000_000, 8_000_000),
        (100_000, 4_000_000, 8_000_000),
    ],
)
def test_pieces_and_credit_fit_the_link(megabits, partition_bytes, credit_bytes):
    def sizes(**options):
        settled = Options(**options).settled(megabits * 1e6)
        return settled.partition_bytes, settled.credit_bytes

    for policy in ("auto", "bytescheduler", "p3", "prophet"):
        assert sizes(policy=policy, barrier=False) == (partition_bytes, credit_bytes)
    assert sizes(barrier=False, partition_bytes=300_000) == (300_000, 1_000_000)
    assert sizes(barrier=False, partition_bytes=3_000_000) == (3_000_000, 6_000_000)
    assert sizes(barrier=False, credit_bytes=7) == (partition_bytes, 7)
    assert sizes(barrier=False, credit_bytes=0) == (partition_bytes, 0)
    for whole in ({}, {"policy": "tictac", "barrier": False}, {"policy": "fifo", "barrier": False}):
        assert sizes(**whole) == (0, 1_000_000)


@pytest.mark.parametrize("megabits", [0, 100, 699, 700, 1_499, 1_500, 2_999, 3_000, 7_999, 8_000, 100_000])
def test_several_workers_have_the_largest_pieces_from_3_gbit_on(megabits):
    one, *several = (Options(barrier=False).settled(megabits * 1e6, workers) for workers in (1, 2, 3, 100))
    sizes = {(options.partition_bytes, options.credit_bytes) for options in several}
    assert sizes == {(4_000_000, 8_000_000) if megabits >= 3_000 else (one.partition_bytes, one.credit_bytes)}


@pytest.mark.parametrize("megabits", [0, 100, 4_000])
def test_the_link_is_asked_for_where_pieces_depend_on_it(megabits):
    asked = []

    def link_bps():
        asked.append(megabits)
        return megabits * 1e6

    def chunks(**options):
        step = test_barrier.Step(side=1024)  # 4 MiB a variable
        asked.clear()
        result, _, body = step.cut(step.loss, step.apply(), options=Options(**options), link_bps=link_bps)
        splits = [node for node in (*result.node, *body.values()) if node.op == "TfschedSplit"]
        return {node.attr["N"].i for node in splits}, len(asked)

    assert chunks(barrier=False) == ({{0: 9, 100: 17, 4_000: 5}[megabits]}, 1)
    assert chunks(barrier=False, partition_bytes=1_100_000) == ({4}, 0)
    # A plan has sizes of its own, so the credit is not made for larger ones.
    plans = [Plan("mine", {"x": 1.0}, partition_bytes={"x": size}) for size in (500_000, 0)]
    plans += [Plan("mine", {"x": 1.0}, pieces={"x": ((512_000, 1.0), (500_000, 2.0))}), Plan("mine", {"x": 1.0})]
    for plan in plans:
        chunks(barrier=False, plan=json.dumps(plan.to_json()))
        assert len(asked) == (not plan.cuts)


@pytest.mark.parametrize("cluster", [None, [WORKER2]])
@pytest.mark.parametrize("second", [False, True])
def test_the_workers_of_a_graph_and_of_its_cluster_count(cluster, second):
    step = test_barrier.Step(side=1024)
    gradients = [step.gradients, step.tower(WORKER2)[1]] if second else [step.gradients]
    summed = []
    for parts, variable in zip(zip(*gradients, strict=True), step.variables, strict=True):
        with tf.device(variable.device):
            summed.append(tf.add_n(parts))
    capable = {task_of(device) for device in (WORKER, WORKER2, PS0, PS1)}
    if cluster is None and not second:
        capable.discard(task_of(WORKER2))
    _, report, _ = step.cut(
        step.loss, step.apply(summed), options=Options(barrier=False), link_bps=lambda: 4e9, capable=capable
    )
    assert report.options.partition_bytes == (4_000_000 if second or cluster else 1_000_000)


@pytest.mark.parametrize("seed", range(6))
def test_with_the_barrier_graphs_are_those_of_tictac_and_whole_tensors(seed):
    graph, fetches = sized_graph(seed, 8)
    auto, whole = (rewrite(copy(graph), one, fetches)[0] for one in (Options(), Options(policy="tictac", partition_bytes=0)))
    assert canonical(auto) == canonical(whole)


def test_across_the_barrier_updates_are_those_of_bytescheduler_in_pieces():
    def crossed(options):
        step = test_barrier.Step(side=512)  # 1 MiB a variable
        result, report, body = step.cut(step.loss, step.apply(), options=options)
        assert report.kept == {}
        return result, body

    explicit = crossed(Options(policy="bytescheduler", partition_bytes=500_000, barrier=False))
    auto = crossed(Options(barrier=False))
    assert {name: node.op for name, node in auto[1].items()} == {name: node.op for name, node in explicit[1].items()}
    tagged = [node for node in (*auto[0].node, *auto[1].values()) if node.op in ("TfschedSplit", "TfschedProxy")]
    assert len(tagged) >= 4 and all(node.attr["policy"].s == b"bytescheduler" for node in tagged)
    assert [node.attr["N"].i for node in tagged if node.op == "TfschedSplit"].count(3) == len(
        [node for node in tagged if node.op == "TfschedSplit"]
    )


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("barrier", [True, False])
def test_all_reduces_have_pieces_for_their_workers(workers, barrier):
    step = test_collectives.Step(workers=workers)
    auto, explicit = (
        step.rewritten(options)[0]
        for options in (Options(barrier=barrier), Options(policy="bytescheduler", partition_bytes=0, barrier=barrier))
    )
    for node in (reduces := test_collectives.by_op(auto, "TfschedAllReduce")):
        assert (node.attr["policy"].s, node.attr["piece_bytes"].i) == (b"bytescheduler", 250_000 * workers)
    assert len(reduces) == 3 and canonical(auto) == canonical(explicit)


def test_steps_that_keep_the_barrier_beside_others_share_their_queue():
    setting = Setting(Options(barrier=False), "me")
    kept = setting.with_barrier.options
    assert kept.barrier and (kept.policy, kept.partition_bytes) == ("bytescheduler", 500_000)


def test_the_benchs_settings_and_the_simulator_take_auto():
    (setting,) = find_settings(["bytescheduler:policy=auto:partition_bytes=auto:barrier=false"])
    method = method_of(setting)
    assert (method.policy, method.partition_bytes, method.barrier) == ("bytescheduler", 500_000, False)
    assert method_of(setting, all_reducing=True).partition_bytes is None
    (fifo,) = find_settings(["fifo:barrier=false"])
    assert {method_of(fifo, all_reducing=one).policy for one in (True, False)} == {"fifo"}
    (kept,) = find_settings(["fifo:policy=tictac"])
    assert (method_of(kept).policy, method_of(kept).ordering) == ("tictac", "fifo")


def test_the_simulator_and_the_tuner_give_a_plan_with_sizes_the_credit_that_the_wire_gives_it(monkeypatch):
    fast_bps = 4e9
    sized, unsized = (Plan("mine", {"x": 1.0}, partition_bytes=sizes) for sizes in ({"x": 500_000}, {}))
    (setting,) = find_settings(["bytescheduler+barrier-crossing"])
    credits = [method_of(setting, plan=plan, link_bps=fast_bps).credit_bytes for plan in (sized, unsized)]
    assert credits == [1_000_000, 2_000_000]
    # Nobody has measured a link in this process.
    monkeypatch.setattr(first, "c_api", lambda: types.SimpleNamespace(tfsched_link_bps=lambda: fast_bps))
    reach = types.SimpleNamespace(all_reduces=False, workers=1)
    for plan, credit_bytes in zip((sized, unsized), credits, strict=True):
        options = Options(barrier=False, plan=json.dumps(plan.to_json()))
        assert first.first_setting(options, reach, (GRAPH, -1)).credit_bytes == credit_bytes
