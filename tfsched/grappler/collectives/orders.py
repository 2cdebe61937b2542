"""What an ordering or a plan says of a graph's all-reduces: who goes first, what goes together, in which pieces."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from tfsched import ordering as orderings
from tfsched._options import Options
from tfsched.errors import TfschedError
from tfsched.grappler.collectives import urgency
from tfsched.grappler.collectives.packs import TYPES, Pack
from tfsched.grappler.reading.graph import GraphView, digest, split_input
from tfsched.ordering import AllReduce, Decision, Plan, exchange_dag

# What stands for the receiving task in the names of plans: a gradient goes to all workers.
RECEIVER = "all-reduce"
# Orderings that would look at times, which only a traced step has.
NEED_TIMES = frozenset(
    {"tao", "mg-wfbp", "prophet", "pace", "buckets", "lookahead", "exact", "dynacomm", "us-byte", "optimal"}
)
# Leaves tensors in the order in which they become ready, which nobody has to know beforehand.
AS_READY = "fifo"

# (pack, element)
Key = tuple[int, int]


@dataclasses.dataclass
class Orders:
    """How the elements of all packs are to be sent.

    Attributes:
      name: of the ordering or plan, for members to compare.
      names: element -> its name in plans.
      places: element -> 0..n-1, the most urgent first; all 0 where they leave as they become ready.
      first: elements whose first half has a rank of its own, before all second halves -> its key.
      groups: element -> what it is sent with; whoever is in none is joined by its size.
      pieces: element -> the bytes of its pieces, 0 for whole; who has none has the options'.
      uses: element -> the first use of its variable.
      cuts: element -> bytes and priority of each of its pieces, where a plan has them of several sizes.
      planned: element -> its priority in the plan, where that has it.
    """

    name: str
    names: dict[Key, str]
    places: dict[Key, int]
    first: dict[Key, float]
    groups: dict[Key, str]
    pieces: dict[Key, int]
    uses: dict[Key, urgency.Use | None]
    cuts: dict[Key, tuple[tuple[int, float], ...]] = dataclasses.field(default_factory=dict)
    planned: dict[Key, float] = dataclasses.field(default_factory=dict)


def decide(view: GraphView, packs: Sequence[Pack], options: Options, plan: Plan | None) -> Orders:
    """Looks the elements up in the plan, and orders those that it does not name, behind the others, by ``options.ordering``.

    Raises:
      TfschedError: the ordering needs times and there is no plan.
      ValueError: the ordering cannot be used.
    """
    uses = urgency.uses(view, packs)
    by_need = urgency.order(uses)
    names = _names(view, packs)
    orders = Orders(options.ordering, names, {}, {}, {}, {}, uses)
    planned: dict[Key, float] = {}
    if plan is not None:
        planned = {key: value for key, name in names.items() if (value := plan.priority_of(name)) is not None}
    orders.planned = planned
    if planned and plan is not None:
        orders.name = f"{plan.algorithm}:{digest(repr(plan.to_json()['transfers']).encode())}"
        _take_over(orders, plan, planned)
    computed: Mapping[str, float] = {}
    as_ready = not planned and options.ordering == AS_READY
    if len(planned) < len(names) and not as_ready:
        computed = _computed(view, packs, orders, by_need, options, plan is not None)
        if isinstance(computed, Decision) and not planned:
            halves = computed.contributions
            orders.first = {key: halves[name] for key, name in names.items() if name in halves}
    ranked = sorted(by_need, key=lambda key: (0, planned[key]) if key in planned else (1, computed.get(names[key], 0.0)))
    orders.places = {key: 0 if as_ready else place for place, key in enumerate(ranked)}
    return orders


def _names(view: GraphView, packs: Sequence[Pack]) -> dict[Key, str]:
    """Elements' names: that of their tensor, which is numbered where one is reduced twice."""
    found: dict[Key, str] = {}
    taken: dict[str, int] = {}
    for number, pack in enumerate(packs):
        for position, element in enumerate(pack.elements):
            source, port = split_input(element.tensor)
            tensor = f"{source}:{port}"
            taken[tensor] = taken.get(tensor, 0) + 1
            again = f"#{taken[tensor]}" if taken[tensor] > 1 else ""
            found[number, position] = f"{tensor}{again}@{RECEIVER}"
    return found


def _take_over(orders: Orders, plan: Plan, planned: Mapping[Key, float]) -> None:
    """What the plan says besides the order."""
    group_of = {name: f"group {number}" for number, group in enumerate(plan.groups or ()) for name in group}
    for key in planned:
        name = orders.names[key]
        if plan.groups is not None:
            orders.groups[key] = group_of.get(name, name)
        if (size := plan.partition_bytes_of(name)) is not None:
            orders.pieces[key] = size
        if cut := plan.pieces_of(name):
            orders.cuts[key] = cut
        if name in plan.contributions:
            orders.first[key] = plan.contributions[name]


def _computed(
    view: GraphView, packs: Sequence[Pack], orders: Orders, by_need: Sequence[Key], options: Options, has_plan: bool
) -> Mapping[str, float]:
    """Priorities by the ordering that the options name."""
    name = options.ordering
    if name in NEED_TIMES:
        if not has_plan:
            raise TfschedError(
                f"Ordering {name!r} of all-reduces needs op times and no plan is given; trace some steps with "
                f"tfsched.trace_function on each worker, save trace.plan({name!r}) of one of them and name the file in "
                "Options(plan=...) on all."
            )
        name = "layer"
    return orderings.get(name)(_dag(view, packs, orders, by_need), seed=options.seed)


def _dag(view: GraphView, packs: Sequence[Pack], orders: Orders, by_need: Sequence[Key]) -> orderings.Dag:
    """The step as orderings see it that need no times: packed is what becomes ready first, used what is urgent."""
    needed = {key: float(place) for place, key in enumerate(by_need) if orders.uses[key] is not None}
    numbers = itertools.count()
    gradients = []
    for number, pack in enumerate(packs):
        size = TYPES[view.nodes[pack.reduce].attr["T"].type]
        for position, element in enumerate(pack.elements):
            key = (number, position)
            gradients.append(AllReduce(orders.names[key], element.elements * size, float(next(numbers)), needed.get(key)))
    return exchange_dag(gradients)
