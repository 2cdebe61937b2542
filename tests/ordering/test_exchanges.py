"""All-reduces of a step as a DAG: what the planners make of it, and what a plan keeps of what they decide."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tfsched.ordering import AllReduce, DagError, Decision, Plan, PlanError, evaluate, exchange_dag, get, make_plan

MB = 1_000_000
LINK_BPS = 8e9  # 1 MB takes 1000 µs


def step(sizes: list[int], gap_us: float = 100.0, forward_us: float = 100.0) -> list[AllReduce]:
    """A chain of layers: the last one's gradient is ready first, the first one's is needed first."""
    count = len(sizes)
    return [AllReduce(f"g{i}", size, gap_us * (count - i), forward_us * (i + 1)) for i, size in enumerate(sizes)]


def planned(algorithm: str, startup_us: float = 0.0, **arguments: Any) -> Plan:
    return make_plan(exchange_dag(step(**arguments), LINK_BPS, startup_us), algorithm)


def by_priority(plan: Plan) -> list[str]:
    return sorted(plan.priorities, key=plan.priorities.__getitem__)


def test_the_dag_is_two_chains_with_the_all_reduces_between() -> None:
    dag = exchange_dag(step([MB, 2 * MB, MB]), LINK_BPS, 50.0)
    assert [op.name for op in dag.recvs] == ["g2", "g1", "g0"]  # as they become ready
    assert [op.inputs for op in dag.recvs] == [("ready/g2",), ("ready/g1",), ("ready/g0",)]
    times = dict(zip((op.name for op in dag.ops), dag.times_us(), strict=True))
    assert [times[f"ready/g{i}"] for i in (2, 1, 0)] == [0.0, 100.0, 100.0]
    assert [times[name] for name in ("begin", "use/g0", "use/g1")] == [100.0, 100.0, 100.0]
    assert [times[name] for name in ("g0", "g1", "g2")] == [1050.0, 2050.0, 1050.0]
    # By hand: g2 from 0, g0 as soon as it is free, and so on; use/g1 waits for g1.
    order = {"g2": 0.0, "g0": 1.0, "g1": 2.0}
    assert evaluate(dag, order).makespan_us == 1050 + 1050 + 2050 + times["use/g1"] + times["use/g2"]


def test_what_no_forward_pass_uses_is_last_and_bad_input_is_said() -> None:
    dag = exchange_dag([AllReduce("a", MB, 0.0, None), AllReduce("b", MB, 5.0, 1.0)])
    assert by_priority(make_plan(dag, "layer")) == ["b", "a"]
    with pytest.raises(DagError, match="given twice"):
        exchange_dag([AllReduce("a", MB, 0.0, 1.0), AllReduce("a", MB, 0.0, 1.0)])
    with pytest.raises(DagError, match="no ops"):
        exchange_dag([])


@pytest.mark.parametrize("algorithm", ["layer", "tio", "tao", "p3", "bytescheduler", "pace", "dear", "prophet"])
def test_what_is_needed_first_is_most_urgent(algorithm: str) -> None:
    plan = planned(algorithm, sizes=[MB, MB, 2 * MB, MB])
    assert plan.priorities["g0"] <= plan.priorities["g1"] < plan.priorities["g2"] < plan.priorities["g3"]


@pytest.mark.parametrize("algorithm", ["fifo", "mg-wfbp"])
def test_what_is_ready_first_goes_first(algorithm: str) -> None:
    assert by_priority(planned(algorithm, sizes=[MB, 2 * MB, 3 * MB])) == ["g2", "g1", "g0"]


def test_mg_wfbp_merges_what_comes_within_a_start_up() -> None:
    # Sending of g3 would begin at once; g2 to g0 come before its start-up is over.
    assert planned("mg-wfbp", 500.0, sizes=[MB] * 4).groups == (("g3", "g2", "g1", "g0"),)
    # It sends 1050 µs, while all others come; they are merged.
    assert planned("mg-wfbp", 50.0, sizes=[MB] * 4).groups == (("g2", "g1", "g0"),)
    assert planned("mg-wfbp", 0.0, sizes=[MB] * 4).groups == ()


def test_pace_fuses_small_ones_and_cuts_what_would_be_in_the_way() -> None:
    plan = planned("pace", 1000.0, sizes=[1000] * 30 + [20 * MB])
    (group,) = [one for one in plan.groups or () if "g0" in one]
    assert len(group) > 1 and "g30" not in group
    # The largest is ready first and needed last: in one piece it would keep the others from the link.
    plan = planned("pace", 10.0, sizes=[MB, MB, 20 * MB], forward_us=6000.0)
    assert 0 < plan.partition_bytes["g2"] < 10 * MB


def test_prophet_sends_together_what_is_ready_together() -> None:
    # Stepwise: two gradients at a time (section 2.2).
    ready = [9000.0, 9000.0, 4500.0, 4500.0, 0.0, 0.0]
    gradients = [AllReduce(f"g{i}", MB, at, 10.0 * i) for i, at in enumerate(ready)]
    plan = make_plan(exchange_dag(gradients, LINK_BPS, 10.0), "prophet")
    assert set(plan.groups or ()) == {("g4", "g5"), ("g2", "g3")}


def test_dear_has_one_priority_for_first_halves_and_the_order_of_need_for_second_ones() -> None:
    plan = planned("dear", sizes=[MB] * 3)
    assert by_priority(plan) == ["g0", "g1", "g2"] and plan.groups is None
    (first,) = set(plan.contributions.values())
    assert set(plan.contributions) == {"g0", "g1", "g2"} and first < min(plan.priorities.values())


def test_a_plan_keeps_groups_and_first_halves() -> None:
    plan = Plan("x", {"a": 1.0, "b": 2.0, "c": 3.0}, groups=(("a", "b"),), contributions={"c": 0.5})
    again = Plan.from_json(json.dumps(plan.to_json()))
    assert again == plan and again.extras == {}
    assert plan.to_json()["groups"] == [["a", "b"]]
    assert "groups" not in Plan("x", {"a": 1.0}).to_json()
    assert Plan.from_json(Plan("x", {"a": 1.0}, groups=()).to_json()).groups == ()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"groups": [["a", "a"]]}, "'a' is in the plan's groups twice; leave it in one"),
        ({"groups": [["z"]]}, "'z' is in a group and has no priority"),
        ({"groups": "ab"}, "give a list of lists of names"),
        ({"groups": [[1]]}, "a name in the plan's groups"),
        (
            {"transfers": [{"name": "a", "priority": 1, "contribution_priority": "x"}]},
            "the contribution_priority of transfer 'a'",
        ),
    ],
)
def test_what_is_wrong_with_a_plan_is_said(change: dict[str, Any], sentence: str) -> None:
    good = {"format": "tfsched-plan/1", "algorithm": "x", "transfers": [{"name": "a", "priority": 1}]}
    with pytest.raises(PlanError) as caught:
        Plan.from_json({**good, **change})
    assert sentence.replace("'", '"') in str(caught.value).replace("'", '"')
    with pytest.raises(PlanError, match="none of its own"):
        Plan("x", {"a": 1.0}, contributions={"b": 1.0})


def test_whether_a_planner_has_a_say_in_what_goes_together() -> None:
    dag = exchange_dag(step([MB, MB]), LINK_BPS, 0.0)
    assert Decision.of(get("pace")(dag)).merges and not Decision.of(get("p3")(dag)).merges
    assert make_plan(dag, "pace").groups == () and make_plan(dag, "tao").groups is None
