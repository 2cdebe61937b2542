"""The fast TIO and TAO give exactly the priorities of the paper's algorithms."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings

from tfsched.ordering import get
from tfsched.ordering.dag import Dag, Op, Resource

from . import literal
from .dags import random_dags


@settings(max_examples=400, deadline=None)
@given(random_dags())
def test_tio_and_tao_equal_the_literal_algorithms(dag: Dag) -> None:
    assert get("tio")(dag) == literal.tio(dag)
    assert get("tao")(dag) == literal.tao(dag)


def _training_like(seed: int, links: int, recvs: int, distinct_times: int) -> Dag:
    """A larger dag with branches, joins, recvs after compute, and many ties."""
    draw = random.Random(seed)
    resources = [Resource("cpu", "compute"), *(Resource(f"l{i}", "link") for i in range(links))]
    ops: list[Op] = []
    for i in range(recvs):
        back = [op.name for op in ops[-12:]]
        after = tuple(draw.sample(back, 1)) if back and draw.random() < 0.1 else ()
        time_us = float(draw.randrange(1, distinct_times + 1))
        ops.append(Op(f"r{i}", f"l{draw.randrange(links)}", after, time_us))
        for j in range(draw.randrange(4)):
            inputs = draw.sample([op.name for op in ops[-12:]], min(len(ops), 2))
            time_us = float(draw.randrange(distinct_times))
            ops.append(Op(f"c{i}.{j}", "cpu", tuple(inputs), time_us))
    if seed % 2:
        draw.shuffle(ops)
    return Dag(resources, ops)


@pytest.mark.parametrize("links", [1, 2, 5])
@pytest.mark.parametrize("seed", range(6))
def test_equal_on_larger_dags(seed: int, links: int) -> None:
    dag = _training_like(seed, links, recvs=70, distinct_times=4 if seed < 3 else 1000)
    assert get("tio")(dag) == literal.tio(dag)
    assert get("tao")(dag) == literal.tao(dag)


def test_scan_is_the_same_for_quick_and_rare_changes() -> None:
    # Private ops in falling and in shuffled order of P: every scan changes its best often, seldom.
    draw = random.Random(1)
    for loads_us in (list(range(1, 121)), draw.sample(range(1, 121), 120), [5] * 120):
        ops = [Op(f"r{i}", "l", (), 50.0) for i in range(120)]
        ops += [Op(f"c{i}", "cpu", (f"r{i}",), float(us)) for i, us in enumerate(loads_us)]
        ops += [Op("join", "cpu", tuple(f"c{i}" for i in range(0, 120, 3)), 1.0)]
        dag = Dag([Resource("cpu", "compute"), Resource("l", "link")], ops)
        assert get("tao")(dag) == literal.tao(dag)


def test_measured_times_replace_the_dags_own() -> None:
    dag = _training_like(2, 2, recvs=30, distinct_times=50)
    draw = random.Random(3)
    times_us = {op.name: draw.random() * 100 for op in dag.ops}
    assert get("tao")(dag, times_us) == literal.tao(dag, times_us)
    assert get("tao")(dag, times_us) != get("tao")(dag)
