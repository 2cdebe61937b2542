"""What a planner's messages become on the wire: all bytes, in pieces that can be sent, in the planned order."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tfsched._rules import BLOCK_BYTES, MIN_PARTITION_BYTES
from tfsched.ordering import AllReduce, Plan, exchange_dag, make_plan, with_link
from tfsched.ordering.carried import carried
from tfsched.ordering.decision import Decision, Message, Part


@st.composite
def decisions(draw):
    """A decision of random messages, which may leave bytes out, and all sizes."""
    names = [f"g{number}" for number in range(draw(st.integers(1, 6)))]
    sizes = {name: draw(st.integers(0, 60_000)) for name in names}
    left = dict(sizes)
    messages = []
    for _ in range(draw(st.integers(1, 12))):
        parts = []
        for name in draw(st.sets(st.sampled_from(names), min_size=1)):
            size = draw(st.one_of(st.integers(0, left[name]), st.just(left[name])))
            left[name] -= size
            parts.append(Part(name, size))
        messages.append(Message(tuple(parts)))
    divided = draw(st.sampled_from([0, 10_000, 50_000]))
    return Decision(
        {name: float(number) for number, name in enumerate(names)}, messages=messages, divided_bytes=divided
    ), sizes


@given(decisions())
def test_all_bytes_are_sent_in_pieces_that_the_wire_takes(drawn):
    decision, sizes = drawn
    sent = carried(decision, sizes)
    assert list(sent.priorities) == list(decision)
    for name, cut in sent.pieces.items():
        assert len(cut) > 1 and sum(size for size, _ in cut) == sizes[name]
        assert all(size >= MIN_PARTITION_BYTES for size, _ in cut)
        assert all(size % BLOCK_BYTES == 0 for size, _ in cut[:-1])
        assert sent.priorities[name] == min(place for _, place in cut)
        assert not decision.divided_bytes or all(size <= decision.divided_bytes for size, _ in cut)
    grouped = [name for group in sent.groups for name in group]
    assert len(set(grouped)) == len(grouped) and not {*grouped} & {*sent.pieces}
    for group in sent.groups:
        assert len({sent.priorities[name] for name in group}) == 1
    # A plan takes it, and its file says the same.
    plan = Plan("drawn", sent.priorities, groups=sent.groups, pieces=sent.pieces)
    assert Plan.from_json(json.dumps(plan.to_json())) == plan


def test_parts_keep_the_places_of_their_messages():
    messages = [
        Message((Part("last", 40_000),)),
        Message((Part("middle", 8192), Part("last", 100))),  # a part too small to leave alone goes with the one before
        Message((Part("first", 70_000), Part("small", 10))),
        Message((Part("last", 20_000),)),
    ]
    sizes = {"first": 70_000, "small": 10, "middle": 20_480, "last": 60_100, "never": 5}
    sent = carried(Decision({name: 9.0 - place for place, name in enumerate(sizes)}, messages=messages), sizes)
    assert sent.groups == (("first", "small"),)
    assert sent.pieces == {"last": ((40_064, 0.0), (20_036, 3.0)), "middle": ((8192, 1.0), (12_288, 4.0))}
    assert sent.priorities == {"first": 2.0, "small": 2.0, "middle": 1.0, "last": 0.0, "never": 5.0}


def test_the_optimal_plan_of_a_chain_is_carried_with_its_cuts():
    gradients = [
        AllReduce(f"g{layer}", 4_000_000, ready_us=10_000.0 * (4 - layer), needed_us=50_000.0 + 10_000.0 * layer)
        for layer in range(4)
    ]
    dag = with_link(exchange_dag(gradients), 1e9, 100.0)
    plan = make_plan(dag, "optimal")
    assert plan.pieces, "nothing was cut; choose other times"
    for cut in plan.pieces.values():
        assert sum(size for size, _ in cut) == 4_000_000
        places = [priority for _, priority in cut]
        assert places == sorted(places) and len({*places}) > 1
        assert all(size <= 1_000_000 for size, _ in cut)  # members sum a piece when it is there
