"""The pass bundles small gradients as the simulator does."""

import random

import pytest
from test_collectives import Step, by_op

import tfsched
from tfsched._options import Options
from tfsched._rules import bundle_bytes, bundles_of, exchange_bytes, exchange_credit


@pytest.fixture(autouse=True, scope="module")
def _library():
    tfsched.load()


@pytest.mark.parametrize("partition_bytes", [0, 100_000])
def test_bundles_are_those_of_the_rule(partition_bytes):
    draw = random.Random(partition_bytes)
    for _ in range(5):
        sizes = [draw.choice([16, 1000, 9000, 15_000, 17_000]) for _ in range(draw.randint(2, 30))]
        graph, _ = Step(packs=(tuple(sizes),)).rewritten(Options(partition_bytes=partition_bytes))
        got = sorted(node.attr["elements"].i for node in by_op(graph, "TfschedAllReduce"))
        bundles = bundles_of([4 * size for size in sizes], bundle_bytes(2, partition_bytes))
        alone = set(range(len(sizes))) - {number for bundle in bundles for number in bundle}
        assert got == sorted([sum(sizes[number] for number in bundle) for bundle in bundles] + [sizes[n] for n in alone])


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_without_an_option_a_workers_part_of_a_piece_is_of_one_size(workers):
    def pieces(**options):
        graph, _ = Step(((1_000_000, 20), (900_000,)), workers=workers).rewritten(Options(**options))
        return {node.attr["piece_bytes"].i for node in by_op(graph, "TfschedAllReduce")}

    assert pieces() == {250_000 * workers} == {exchange_bytes(workers)}
    assert pieces(partition_bytes=100_000) == {100_000}


@pytest.mark.parametrize(
    ("workers", "megabits", "wanted"),
    [
        (2, 0, 500_000),
        (2, 500, 500_000),
        (2, 749, 500_000),
        (2, 750, 1_000_000),
        (2, 4_000, 1_000_000),
        (2, 1_000_000, 1_000_000),
        (4, 250, 4 * 250_000),
        (4, 375, 4 * 500_000),
        (4, 1_000, 4 * 1_000_000),
        (4, 100_000, 4 * 1_000_000),
    ],
)
def test_the_simulators_pieces_follow_the_link_as_those_on_the_wire(workers, megabits, wanted):
    # cc/collective/choice_test.cc has the same table.
    assert exchange_bytes(workers, megabits * 1e6) == wanted
    assert exchange_credit(workers, wanted) == max(1_000_000, 2 * wanted if workers == 2 else 2 * wanted // workers)


@pytest.mark.parametrize("workers", [2, 3])
def test_sizes_that_somebody_asks_for_do_not_follow_the_link(workers):
    def follows(plan="", **options):
        graph, _ = Step(((1_000_000, 20), (900_000,)), workers=workers).rewritten(Options(plan=plan, **options))
        nodes = by_op(graph, "TfschedAllReduce")
        return {(node.attr["elements"].i, node.attr["follow_link"].b, node.attr["credit_bytes"].i) for node in nodes}

    elements = (1_000_000, 20, 900_000)
    assert follows() == {(one, True, -1) for one in elements}
    assert follows(partition_bytes=0, credit_bytes=7) == {(one, True, 7) for one in elements}
    assert follows(partition_bytes=100_000) == {(one, False, -1) for one in elements}
