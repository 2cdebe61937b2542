"""Which reduced gradient is needed first: the one whose variable the next forward pass uses first."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tfsched.graph_ops import WHOLE_READS, is_update
from tfsched.grappler.collectives.packs import Element, Pack
from tfsched.grappler.reading.graph import GraphView
from tfsched.grappler.reading.variables import variable_behind

# How many ops there may be between a reduced gradient and the update that takes it.
_FAR = 64
_CONSTANT = {"Const", "HostConst"}


class Use(NamedTuple):
    """A variable's first use: how many ops run one after another before it, itself included, and the node's number."""

    level: int
    node: int


def uses(view: GraphView, packs: Sequence[Pack]) -> dict[tuple[int, int], Use | None]:
    """(pack, element) -> the first use of the variable that is updated with the element, None if there is none.

    A step reads its variables in the order in which the next one will. The variable is the nearest one whose update the
    element reaches: further ones are updated with a norm of all gradients, say.
    """
    first_use = _first_uses(view, packs)
    return {
        (number, position): _nearest(view, element, first_use)
        for number, pack in enumerate(packs)
        for position, element in enumerate(pack.elements)
    }


def order(found: Mapping[tuple[int, int], Use | None]) -> list[tuple[int, int]]:
    """All elements as (pack, element), the most urgent first: that of the earliest use.

    Elements without a use follow. Of equals the later in a pack goes first, for TensorFlow packs the last layer first: so
    all workers, whose graphs may list their nodes differently, come to one order.
    """

    def key(one: tuple[int, int]) -> tuple[int, int, int]:
        use = found[one]
        return (use.level if use is not None else sys.maxsize, one[0], -one[1])

    return sorted(found, key=key)


def _first_uses(view: GraphView, packs: Sequence[Pack]) -> dict[int, Use]:
    """Number of a variable's node -> when its value first meets other data, among all that the gradients are made from.

    That is how many ops have to run one after another before the two can meet. What is done to the value alone, a cast say,
    can be done at any time.
    """
    before = view.ancestors(view.nodes[pack.reduce].name for pack in packs)
    level = [0] * len(view.nodes)
    varies = [False] * len(view.nodes)
    placed = set(view.topological)
    for number in view.topological:
        level[number] = 1 + max((level[source] for source in view.inputs(number)), default=0)
        sources = [edge.source for edge in view.data_inputs[number] if edge.source >= 0]
        op = view.nodes[number].op
        given = op == "PlaceholderWithDefault" or (not sources and op not in _CONSTANT)
        varies[number] = given or any(varies[source] for source in sources)
    found: dict[int, Use] = {}
    for number in view.topological:
        if not before[number] or view.nodes[number].op not in WHOLE_READS:
            continue
        variable = variable_behind(view, number)
        if variable is None:
            continue
        alone, reached = {number}, [number]
        for one in reached:  # grows while it is read
            for consumer in view.consumers[one]:
                if consumer in alone or not before[consumer] or consumer not in placed:
                    continue
                others = [edge.source for edge in view.data_inputs[consumer] if edge.source not in alone]
                if not any(edge.source == one for edge in view.data_inputs[consumer]):
                    continue  # only ordered behind it
                if any(source >= 0 and varies[source] for source in others):
                    use = Use(level[consumer], consumer)
                    found[variable] = min(found.get(variable, use), use)
                else:
                    alone.add(consumer)
                    reached.append(consumer)
    return found


def _nearest(view: GraphView, element: Element, first_use: dict[int, Use]) -> Use | None:
    seen = {number for number, _ in element.consumers}
    layer = list(element.consumers)
    for _ in range(_FAR):
        found = []
        following: list[tuple[int, int]] = []
        for number, position in layer:
            inputs = view.data_inputs[number]
            if is_update(view.nodes[number].op) and position > 0:
                variable = variable_behind(view, inputs[0].source)
                if variable in first_use:
                    found.append(first_use[variable])
            for consumer in view.consumers[number]:
                if consumer in seen:
                    continue
                places = [place for place, edge in enumerate(view.data_inputs[consumer]) if edge.source == number]
                if places:
                    seen.add(consumer)
                    following.extend((consumer, place) for place in places)
        if found:
            return min(found)
        if not following:
            return None
        layer = following
    return None
