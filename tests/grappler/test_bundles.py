"""The pass bundles small gradients as the simulator does."""

import random

import pytest
from test_collectives import Step, by_op

import tfsched
from tfsched._options import Options
from tfsched._rules import EXCHANGE_BYTES, bundles_of


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
        bundles = bundles_of([4 * size for size in sizes], partition_bytes or EXCHANGE_BYTES)
        alone = set(range(len(sizes))) - {number for bundle in bundles for number in bundle}
        assert got == sorted([sum(sizes[number] for number in bundle) for bundle in bundles] + [sizes[n] for n in alone])
