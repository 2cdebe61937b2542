"""Orders of all-reduces: what the options or a plan say is what the rewritten graph says."""

import json

import pytest
import tensorflow as tf
from test_collectives import LARGE, Step, by_op

import tfsched
from tfsched._options import Options
from tfsched.errors import TfschedError
from tfsched.ordering import Plan

SIZES = (LARGE, LARGE + 1, LARGE + 2, LARGE + 3)  # the last is the first layer's


@pytest.fixture(autouse=True, scope="module")
def _library():
    tfsched.load()


def reduces(step, options=None):
    """The rewritten graph's exchanges, by what their sizes add up to."""
    graph, _ = step.rewritten(options)
    return {node.attr["elements"].i: node for node in by_op(graph, "TfschedAllReduce")}


def ranks(step, options=None, attr="rank"):
    return [node.attr[attr].i for _, node in sorted(reduces(step, options).items())]


def names_of(step):
    """The elements' names in plans."""
    return [node.attr["_tfsched_names"].list.s[0].decode() for _, node in sorted(reduces(step).items())]


def names_of_size(step, elements):
    return reduces(step)[elements].attr["_tfsched_names"].list.s[0].decode()


def plan_of(priorities, **more):
    return json.dumps(Plan("made-up", priorities, **more).to_json())


def said(step, options=None):
    (node,) = by_op(step.rewritten(options)[0], "TfschedAgree")
    return dict(word.split("=") for word in node.attr["plan"].s.decode().split())


@pytest.mark.parametrize("ordering", ["tio", "layer", "p3", "bytescheduler"])
def test_the_next_steps_first_use_is_most_urgent(ordering):
    assert ranks(Step((SIZES,)), Options(ordering=ordering)) == [3, 2, 1, 0]


def test_fifo_is_as_ready():
    step = Step((SIZES,))
    assert ranks(step, Options(ordering="fifo")) == [0, 0, 0, 0]
    assert ranks(step, Options(ordering="fifo"), "contribution_rank") == [0, 0, 0, 0]


def test_random_is_the_seeds():
    step = Step((SIZES,))
    drawn = {tuple(ranks(step, Options(ordering="random", seed=seed))) for seed in range(8)}
    assert len(drawn) > 1 and {tuple(sorted(one)) for one in drawn} == {(0, 1, 2, 3)}


def test_dears_first_halves_go_as_they_are_ready_and_before_all_second_ones():
    step = Step((SIZES,))
    assert ranks(step, Options(ordering="dear")) == [4, 3, 2, 1]
    assert ranks(step, Options(ordering="dear"), "contribution_rank") == [0, 0, 0, 0]
    assert {node.attr["count"].i for node in reduces(step, Options(ordering="dear")).values()} == {5}


def test_both_halves_of_all_others_have_one_rank():
    step = Step((SIZES,))
    assert ranks(step, attr="contribution_rank") == ranks(step)


@pytest.mark.parametrize("ordering", ["tao", "mg-wfbp", "prophet", "pace", "buckets", "us-byte", "dynacomm", "optimal"])
def test_an_order_that_needs_times_says_how_to_get_them(ordering):
    with pytest.raises(TfschedError, match=rf"'{ordering}' of all-reduces needs op times .* tfsched\.trace_function"):
        Step((SIZES,)).rewritten(Options(ordering=ordering))


def test_a_plans_order_is_the_graphs():
    step = Step((SIZES,))
    names = names_of(step)
    assert all(name.endswith(":0@all-reduce") for name in names)
    plan = plan_of({names[2]: 0.0, names[0]: 1.0, names[3]: 2.0, names[1]: 3.0})
    assert ranks(step, Options(plan=plan)) == [1, 3, 0, 2]
    # What it does not name follows, by the ordering.
    assert ranks(step, Options(plan=plan_of({names[0]: 5.0}))) == [0, 3, 2, 1]
    assert ranks(step, Options(ordering="pace", plan=plan_of({names[0]: 5.0}))) == [0, 3, 2, 1]
    # A plan of something else says nothing.
    assert ranks(step, Options(plan=plan_of({"other:0@all-reduce": 0.0}))) == [3, 2, 1, 0]


def test_a_plans_groups_are_the_bundles_and_nothing_else_is_joined():
    step = Step(((10, *SIZES, 20),))
    names = [name.decode() for node in reduces(step).values() for name in node.attr["_tfsched_names"].list.s]
    assert len(set(names)) == 6
    whole = dict.fromkeys(names, 1.0)
    grouped = [names_of_size(step, LARGE), names_of_size(step, LARGE + 2)]
    found = reduces(step, Options(plan=plan_of(whole, groups=(tuple(grouped),))))
    assert sorted(found) == sorted([10, 20, LARGE + 1, LARGE + 3, 2 * LARGE + 2])
    alone = reduces(step, Options(plan=plan_of(whole, groups=())))
    assert sorted(alone) == sorted([10, 20, *SIZES])
    # Without a say small ones are joined as ever.
    assert sorted(reduces(step, Options(plan=plan_of(whole)))) == sorted([30, *SIZES])


def test_groups_are_as_urgent_as_their_most_urgent_member():
    step = Step((SIZES,))
    names = names_of(step)
    plan = plan_of({names[0]: 0.0, names[1]: 1.0, names[2]: 2.0, names[3]: 3.0}, groups=((names[0], names[3]),))
    found = {elements: node.attr["rank"].i for elements, node in reduces(step, Options(plan=plan)).items()}
    assert found == {2 * LARGE + 3: 0, LARGE + 1: 1, LARGE + 2: 2}


def test_a_group_stays_within_its_pack():
    step = Step(((LARGE, LARGE + 1), (LARGE + 2, LARGE + 3)))
    names = names_of(step)
    plan = plan_of(dict.fromkeys(names, 0.0), groups=(tuple(names),))
    graph, _ = step.rewritten(Options(plan=plan))
    assert sorted(node.attr["elements"].i for node in by_op(graph, "TfschedAllReduce")) == [2 * LARGE + 1, 2 * LARGE + 5]


def test_pieces_of_several_sizes_have_ranks_of_their_own():
    step = Step((SIZES,))
    small, large = names_of(step)[:2]
    elements = dict(zip(names_of(step), SIZES, strict=True))
    cut = ((4096, 0.0), (4 * elements[large] - 4096, 2.0))
    wrong = ((4096, 0.0), (4096, 5.0))  # planned for another size
    plan = plan_of({large: 0.0, small: 1.0}, groups=(), pieces={large: cut, small: wrong})
    found = reduces(step, Options(plan=plan))
    node = found[elements[large]]
    assert list(node.attr["piece_elements"].list.i) == [1024, elements[large] - 1024]
    assert list(node.attr["piece_ranks"].list.i) == [0, 2] and node.attr["rank"].i == 0
    whole = found[elements[small]]
    assert "piece_elements" not in whole.attr and whole.attr["rank"].i == 1
    # Planned pieces need no larger credit on a fast link; what the plan does not cut follows the link.
    assert not node.attr["follow_link"].b and whole.attr["follow_link"].b
    assert sorted(node.attr["rank"].i for node in found.values()) == [0, 1, 3, 4]
    assert {node.attr["count"].i for node in found.values()} == {5}
    # All members have to have the same pieces and ranks.
    words = said(step, Options(plan=plan))
    for other in (((4160, 0.0), (cut[1][0] - 64, 2.0)), (cut[0], (cut[1][0], 0.5))):
        changed = plan_of({large: 0.0, small: 1.0}, groups=(), pieces={large: other, small: wrong})
        assert said(step, Options(plan=changed))["sizes"] != words["sizes"]


def test_pieces_are_the_plans_and_of_a_group_the_smallest():
    step = Step((SIZES,))
    names = names_of(step)
    sizes = {names[0]: 8192, names[1]: 16384, names[2]: 0}
    plan = plan_of(dict.fromkeys(names, 0.0), groups=((names[0], names[1]),), partition_bytes=sizes)
    found = {elements: node.attr["piece_bytes"].i for elements, node in reduces(step, Options(plan=plan)).items()}
    whole = found.pop(LARGE + 2)
    # Cut down to what 64 bytes for each of up to 64 members divide, it still is one piece.
    assert whole - 64 * 64 == 4 * (LARGE + 2)
    assert found == {2 * LARGE + 1: 8192, LARGE + 3: 500_000}


def test_members_compare_order_ranks_groups_and_pieces():
    step = Step((SIZES,))
    names = names_of(step)
    forwards, backwards = (dict(zip(names, places, strict=True)) for places in ([0.0, 1, 2, 3], [3.0, 2, 1, 0]))
    base = said(step)
    assert base["order"] == "tio"
    assert said(step, Options(ordering="fifo"))["ranks"] != base["ranks"]
    plans = [
        plan_of(forwards),
        plan_of(backwards),
        plan_of(forwards, groups=((names[0], names[1]),)),
        plan_of(forwards, partition_bytes={names[0]: 8192}),
    ]
    words = [said(step, Options(plan=plan)) for plan in plans]
    assert len({json.dumps(one) for one in [base, *words]}) == 5
    assert all(one["order"].startswith("made-up:") for one in words)
    assert words[0]["order"] != words[1]["order"] and words[0]["ranks"] != words[1]["ranks"]
    assert words[0]["sizes"] not in (words[2]["sizes"], words[3]["sizes"])


def test_a_tensor_that_is_reduced_twice_has_two_names():
    step = Step((SIZES,))
    (pack,) = by_op(step.graph, "ConcatV2")
    pack.input[1] = pack.input[0]
    (part,) = by_op(step.graph, "SplitV")
    sizes = next(node for node in step.graph.node if node.name == part.input[1])
    sizes.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([LARGE, LARGE, LARGE + 2, LARGE + 3], tf.int32))
    graph, _ = step.rewritten()
    names = [node.attr["_tfsched_names"].list.s[0].decode() for node in by_op(graph, "TfschedAllReduce")]
    assert len(set(names)) == 4 and sum("#2@" in name for name in names) == 1
