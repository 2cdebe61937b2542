"""Which reduced gradient is needed first: the one whose variable the next forward pass uses first."""

from __future__ import annotations

from collections.abc import Sequence

from tfsched.graph_ops import WHOLE_READS, is_update
from tfsched.grappler.collectives.packs import Element, Pack
from tfsched.grappler.reading.graph import GraphView
from tfsched.grappler.reading.variables import variable_behind

# How many ops there may be between a reduced gradient and the update that takes it.
_FAR = 64
_CONSTANT = {"Const", "HostConst"}


def order(view: GraphView, packs: Sequence[Pack]) -> list[tuple[int, int]]:
    """All elements of all packs as (pack, element), the most urgent first.

    A step reads its variables in the order in which the next one will, so an element is as urgent as its variable's first
    use in front of the gradients. The variable is the nearest one whose update the element reaches: further ones are
    updated with a norm of all gradients, say. Elements that reach none follow, in the reverse order of their pack:
    TensorFlow packs the last layer first.
    """
    first_use = _first_uses(view, packs)
    keys = []
    for number, pack in enumerate(packs):
        for position, element in enumerate(pack.elements):
            use = _nearest(view, element, first_use)
            keys.append(((0, *use) if use is not None else (1, number, -position), number, position))
    return [(number, position) for _, number, position in sorted(keys)]


def _first_uses(view: GraphView, packs: Sequence[Pack]) -> dict[int, tuple[int, int]]:
    """Number of a variable's node -> when its value first meets other data, among all that the gradients are made from.

    That is how many ops have to run one after another before the two can meet; of equals the one that TensorFlow would find
    ready first. What is done to the value alone, a cast say, can be done at any time.
    """
    before = view.ancestors(view.nodes[pack.reduce].name for pack in packs)
    level = [0] * len(view.nodes)
    varies = [False] * len(view.nodes)
    place = {}
    for position, number in enumerate(view.topological):
        place[number] = position
        level[number] = 1 + max((level[source] for source in view.inputs(number)), default=0)
        sources = [edge.source for edge in view.data_inputs[number] if edge.source >= 0]
        op = view.nodes[number].op
        given = op == "PlaceholderWithDefault" or (not sources and op not in _CONSTANT)
        varies[number] = given or any(varies[source] for source in sources)
    uses: dict[int, tuple[int, int]] = {}
    for number in view.topological:
        if not before[number] or view.nodes[number].op not in WHOLE_READS:
            continue
        variable = variable_behind(view, number)
        if variable is None:
            continue
        alone, reached = {number}, [number]
        for one in reached:  # grows while it is read
            for consumer in view.consumers[one]:
                if consumer in alone or not before[consumer] or consumer not in place:
                    continue
                others = [edge.source for edge in view.data_inputs[consumer] if edge.source not in alone]
                if not any(edge.source == one for edge in view.data_inputs[consumer]):
                    continue  # only ordered behind it
                if any(source >= 0 and varies[source] for source in others):
                    use = (level[consumer], place[consumer])
                    uses[variable] = min(uses.get(variable, use), use)
                else:
                    alone.add(consumer)
                    reached.append(consumer)
    return uses


def _nearest(view: GraphView, element: Element, first_use: dict[int, tuple[int, int]]) -> tuple[int, int] | None:
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
