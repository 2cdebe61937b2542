"""What is planned is what is sent: groups, pieces and order of all-reduces in real training, with stock's bits."""

import collections
import dataclasses
import json

import pytest

from tfsched._rules import POLICIES
from tfsched.ordering import make_plan, with_link
from tfsched.tracing import StepTrace

from .cluster import STOCK, Cluster
from .test_mirrored import LEFT_TO_STOCK, counted, everywhere

pytestmark = pytest.mark.timeout(540)
SLOW_BPS = 40e6
# The largest gradient is half a second on its way.
SLOWER_BPS = 8e6
# Two messages of the default size fill the credit; here one does, so that the next is chosen when the last has left.
CREDIT = {"policy": "bytescheduler", "credit_bytes": 1}
# What one message may be late by because another thread saw it later.
LATE_US = 20_000
LARGEST = 128 * 1024 * 4


def mirrored(nursery, workers=2, **arguments):
    slow = {f"worker{number}": {"TFSCHED_EMULATED_BPS": str(SLOW_BPS)} for number in range(workers)}
    return Cluster(ps=0, workers=workers, nursery=nursery, mirrored=True, environment=slow, **arguments)


@pytest.fixture(scope="module")
def wanted(nursery):
    """What two stock workers train."""
    with Cluster(ps=0, workers=2, nursery=nursery, mirrored=True, protocol=STOCK) as cluster:
        yield everywhere(cluster, "planned.train")[0]["variables"]


@pytest.fixture(scope="module")
def pair(nursery):
    with mirrored(nursery) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def trace(pair):
    return StepTrace.from_json(everywhere(pair, "planned.trace", options=CREDIT)[0])


def planned(trace, algorithm, startup_us):
    """The plan for a link of the emulated rate on which a message costs so much besides its bytes."""
    return make_plan(with_link(trace.dag(), SLOW_BPS, startup_us), algorithm)


def trained(cluster, urgent_behind_largest=False, **options):
    """Of each worker what it trained, and what it sent in the last step once all have received it."""
    results = everywhere(
        cluster, "planned.train", options={**CREDIT, **options}, urgent_behind_largest=urgent_behind_largest
    )
    sends = everywhere(cluster, "planned.sent")
    return [{**one, "sends": rows} for one, rows in zip(results, sends, strict=True)]


def by_message(sends):
    """Message -> its rows, as they left."""
    found = collections.defaultdict(list)
    for row in sorted(sends, key=lambda row: row["started_us"]):
        found[row["name"]].append(row)
    return found


def check_order(sends):
    """None left while a more urgent one was there."""
    for row in sends:
        for other in sends:
            if other["rank"] < row["rank"] and other["to"] == row["to"] and other["started_us"] > row["started_us"]:
                assert other["ready_us"] > row["started_us"] - LATE_US, (row, other)


def messages_of(plan, trace):
    """Of each message that the plan makes, the most urgent first: bytes, the most of a piece (0 for whole), and the pieces'
    bytes by their priority where the plan has several sizes."""
    grouped = {name for group in plan.groups for name in group}
    groups = [*plan.groups, *((name,) for name in plan.priorities if name not in grouped)]
    groups.sort(key=lambda group: min(plan.priorities[name] for name in group))
    whole = [sum(trace.sizes[name] for name in group) for group in groups]
    pieces = [min(filter(None, (plan.partition_bytes.get(name, 0) for name in group)), default=0) for group in groups]
    cuts = [[size for size, _ in sorted(plan.pieces.get(group[0], ()), key=lambda piece: piece[1])] for group in groups]
    return list(zip(whole, pieces, cuts, strict=True))


def test_a_trace_knows_gradients_their_times_and_the_rate(trace):
    assert trace.receivers() == ["all-reduce"] and len(trace.links) == 10
    dag = trace.dag()
    assert dag.resources["all-reduce"].bandwidth_bps == pytest.approx(SLOW_BPS, rel=0.3)
    weights = {op.size_bytes: number for number, op in enumerate(dag.recvs)}
    # The last layer's is ready before the first one's; the forward pass needs the first layer's first.
    assert weights[LARGEST] < weights[64 * 128 * 4]
    layer = trace.plan("layer").priorities
    ordered = sorted((op for op in dag.recvs if op.size_bytes >= 64 * 128 * 4), key=lambda op: layer[op.name])
    assert ordered[0].size_bytes == 64 * 128 * 4 and ordered[-1].size_bytes == LARGEST
    assert all(one.use and one.transfer for one in trace.exchanges)


@pytest.mark.parametrize(
    ("algorithm", "startup_us"),
    [("mg-wfbp", 3000.0), ("pace", 3000.0), ("pace", 0.0), ("prophet", 0.0), ("us-byte", 300.0), ("optimal", 300.0)],
)
def test_what_is_planned_is_what_is_sent(pair, trace, wanted, algorithm, startup_us):
    plan = planned(trace, algorithm, startup_us)
    wished = messages_of(plan, trace)
    if startup_us == 3000.0:
        assert any(len(group) > 1 for group in plan.groups)
    before = counted(pair, "worker0")
    results = trained(pair, plan=json.dumps(plan.to_json()))
    assert [one["variables"] for one in results] == [wanted, wanted]
    assert counted(pair, "worker0")["packs_stock"] == before["packs_stock"]
    for one in results:
        found = by_message(one["sends"])
        assert len(found) == len(wished)
        in_order = sorted(found.values(), key=lambda rows: min(row["rank"] for row in rows))
        assert [sum(row["bytes"] for row in rows) for rows in in_order] == [size for size, _, _ in wished]
        for rows, (size, piece, cut) in zip(in_order, wished, strict=True):
            if cut:
                assert [row["bytes"] for row in sorted(rows, key=lambda row: row["rank"])] == cut
                continue
            assert all(row["rank"] == rows[0]["rank"] for row in rows)
            assert len(rows) == 1 if piece == 0 else max(row["bytes"] for row in rows) <= piece
            assert piece == 0 or len(rows) <= -(-size // (piece // 128 * 128))
        check_order(one["sends"])


@pytest.mark.parametrize("barrier", [True, False])
def test_pieces_of_several_sizes_have_places_of_their_own(pair, trace, wanted, barrier):
    plan = trace.plan("layer")
    cut = {name for name, size in trace.sizes.items() if size >= 8192}
    assert len(cut) >= 3
    pieces = {name: ((4096, plan.priorities[name]), (trace.sizes[name] - 4096, plan.priorities[name] + 3.5)) for name in cut}
    plan = dataclasses.replace(plan, pieces=pieces, groups=())
    before = counted(pair, "worker0")
    results = trained(pair, plan=json.dumps(plan.to_json()), barrier=barrier)
    assert [one["variables"] for one in results] == [wanted, wanted]
    assert counted(pair, "worker0")["packs_stock"] == before["packs_stock"]
    for one in results:
        found = [sorted(rows, key=lambda row: row["rank"]) for rows in by_message(one["sends"]).values()]
        sizes = sorted([row["bytes"] for row in rows] for rows in found)
        assert sizes == sorted([4096, size - 4096] if name in cut else [size] for name, size in trace.sizes.items())
        assert any(rows[-1]["rank"] > rows[0]["rank"] + 1 for rows in found), "nothing came between"
        check_order(one["sends"])


def test_an_urgent_gradient_interrupts_one_that_is_on_its_way(pair, trace, wanted):
    plan = planned(trace, "pace", 0.0)
    plan = dataclasses.replace(plan, partition_bytes=dict.fromkeys(plan.priorities, 65536))
    everywhere(pair, "configure.change", rate_bps=SLOWER_BPS)
    results = trained(pair, urgent_behind_largest=True, plan=json.dumps(plan.to_json()))
    everywhere(pair, "configure.change", rate_bps=0)
    for one in results:
        assert one["variables"] == wanted
        found = by_message(one["sends"])
        (largest,) = [rows for rows in found.values() if sum(row["bytes"] for row in rows) == LARGEST]
        assert len(largest) == 8
        between = [
            row
            for row in one["sends"]
            if largest[0]["started_us"] < row["started_us"] < largest[-1]["started_us"] and row["rank"] < largest[0]["rank"]
        ]
        assert between
        check_order(one["sends"])


@pytest.mark.parametrize("ordering", ["fifo", "layer", "p3", "random", "dear"])
def test_every_order_gives_stocks_bits(pair, wanted, ordering):
    policy = ordering if ordering in POLICIES else "bytescheduler"
    for one in trained(pair, ordering=ordering, policy=policy, partition_bytes=65536):
        assert one["variables"] == wanted and one["sends"]
        check_order(one["sends"])
        ranks = {row["rank"] for row in one["sends"]}
        assert len(ranks) == 1 if ordering == "fifo" else len(ranks) > 3


@pytest.mark.parametrize("barrier", [True, False], ids=["kept", "crossed"])
def test_the_policy_prophet_gives_stocks_bits(pair, wanted, barrier):
    """The last layer's gradient takes most of the link's time while more urgent ones become ready."""
    for one in trained(pair, policy="prophet", partition_bytes=65536, credit_bytes=100_000, barrier=barrier):
        assert one["variables"] == wanted and one["sends"]
        check_order(one["sends"])


def test_members_with_other_plans_step_aside_and_say_what_differs(pair, trace, wanted):
    plans = [json.dumps(planned(trace, algorithm, 0.0).to_json()) for algorithm in ("pace", "layer")]
    own = {f"worker{number}": {"options": {**CREDIT, "plan": plan}} for number, plan in enumerate(plans)}
    before = counted(pair, "worker0")
    results = everywhere(pair, "planned.train", own, steps=4)
    assert [one["variables"] for one in results] == [wanted, wanted]
    after = counted(pair, "worker0")
    assert after["packs_stock"] - before["packs_stock"] == 4 and after["all_reduces"] == before["all_reduces"]
    for name in pair.names:
        said = [line for line in pair.log(name).splitlines() if LEFT_TO_STOCK in line]
        assert len(said) == 1 and "has order layer:" in said[0] and "has pace:" in said[0], said


def test_dear_sends_first_halves_as_they_are_ready_and_second_ones_by_need(nursery):
    with mirrored(nursery, workers=3) as cluster:
        results = trained(cluster, ordering="dear", barrier=False)
        assert results[0]["variables"] == results[1]["variables"] == results[2]["variables"]
        again = trained(cluster, ordering="layer")
        assert [one["variables"] for one in again] == [one["variables"] for one in results]
        for one in results:
            found = by_message(one["sends"])
            halves = [sorted({row["rank"] for row in rows}) for rows in found.values()]
            assert all(ranks[0] == 0 for ranks in halves if len(ranks) == 2)
            # Each large tensor has both; small ones go whole to everybody, when they are needed.
            assert sum(len(ranks) == 2 for ranks in halves) >= 5
            seconds = [ranks[-1] for ranks in halves]
            assert len(set(seconds)) == len(seconds) and min(seconds) > 0
            for rows in found.values():
                firsts = [row["bytes"] for row in rows if row["rank"] == 0]
                others = [row["bytes"] for row in rows if row["rank"] > 0]
                if firsts:
                    # A third of the tensor comes to be summed here, so two leave; and the sum leaves twice.
                    assert sum(firsts) == pytest.approx(sum(others), rel=0.1)
            check_order(one["sends"])
