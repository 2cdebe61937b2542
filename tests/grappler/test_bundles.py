"""The pass bundles small gradients as the simulator does."""

import random

import pytest
from test_collectives import Step, by_op

import tfsched
from tfsched._options import Options
from tfsched._rules import bundles_of, exchange_bytes


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
        bundles = bundles_of([4 * size for size in sizes], partition_bytes or exchange_bytes(2))
        alone = set(range(len(sizes))) - {number for bundle in bundles for number in bundle}
        assert got == sorted([sum(sizes[number] for number in bundle) for bundle in bundles] + [sizes[n] for n in alone])


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_without_an_option_a_workers_part_of_a_piece_is_of_one_size(workers):
    def pieces(**options):
        graph, _ = Step(((1_000_000, 20), (900_000,)), workers=workers).rewritten(Options(**options))
        return {node.attr["piece_bytes"].i for node in by_op(graph, "TfschedAllReduce")}

    assert pieces() == {250_000 * workers} == {exchange_bytes(workers)}
    assert pieces(partition_bytes=100_000) == {100_000}
