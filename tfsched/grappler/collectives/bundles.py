"""Which elements of a pack are exchanged as one tensor, in which pieces, and with which rank."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from tfsched._options import Options
from tfsched._rules import SMALL_BYTES, bundle_bytes, exchange_bytes
from tfsched.grappler.collectives.orders import AS_READY, Orders
from tfsched.grappler.collectives.packs import TYPES, Pack
from tfsched.grappler.reading.graph import GraphView

# Pieces are cut down to what 64 bytes for each member divide: so much more, and a whole tensor stays one for 64 members.
_SLACK_BYTES = 64 * 64


@dataclasses.dataclass
class Bundle:
    """Elements of one pack that are exchanged as one tensor; a large one is alone.

    Attributes:
      pack: number of the pack, and ``members`` the elements' numbers in it.
      elements: how many its members have together.
      piece_bytes: of how many bytes its pieces are at most; if it ``follows_link``, they become larger on fast links.
      rank: how many bundles are more urgent; that of the first half of its exchange is ``first_rank``.
      pieces: elements and rank of each piece, where a plan has them of several sizes.
    """

    pack: int
    members: list[int]
    elements: int
    piece_bytes: int = 0
    follows_link: bool = False
    rank: int = 0
    first_rank: int = 0
    pieces: tuple[tuple[int, int], ...] = ()


def piece_bytes(options: Options, pack: Pack) -> int:
    """Of how many bytes the pieces are at most in which a tensor is exchanged, where no plan says it."""
    given = options.partition_bytes
    return given if given > 0 else exchange_bytes(pack.members or 2)


def make_bundles(view: GraphView, packs: Sequence[Pack], orders: Orders, options: Options) -> list[Bundle]:
    """All bundles of a graph, in the order of packs and elements: what a plan groups, and small ones by their size."""
    bundles: list[Bundle] = []
    for number, pack in enumerate(packs):
        size = TYPES[view.nodes[pack.reduce].attr["T"].type]
        default = piece_bytes(options, pack)
        most = bundle_bytes(pack.members or 2, options.partition_bytes) // size
        planned: dict[str, Bundle] = {}
        open_bundle: Bundle | None = None
        for member, element in enumerate(pack.elements):
            group = orders.groups.get((number, member))
            joined = planned.get(group) if group is not None else open_bundle
            if group is None and element.elements * size >= SMALL_BYTES:
                bundles.append(Bundle(number, [member], element.elements))
            elif joined is not None and (group is not None or joined.elements + element.elements <= most):
                joined.members.append(member)
                joined.elements += element.elements
            else:
                bundles.append(Bundle(number, [member], element.elements))
                if group is not None:
                    planned[group] = bundles[-1]
                else:
                    open_bundle = bundles[-1]
        for bundle in bundles:
            if bundle.pack == number:
                planned_bytes = _planned_pieces(bundle, size, orders)
                bundle.piece_bytes = planned_bytes or default
                bundle.follows_link = not planned_bytes and options.partition_bytes <= 0
    cuts = _cuts(view, packs, bundles, orders)
    if cuts:
        _rank_pieces(bundles, orders, cuts)
    else:
        _rank(bundles, orders)
    return bundles


def _cuts(
    view: GraphView, packs: Sequence[Pack], bundles: Sequence[Bundle], orders: Orders
) -> dict[int, list[tuple[int, float]]]:
    """Number of a bundle -> elements and priority of its pieces: of what is alone, and as large as it was planned."""
    found = {}
    for number, bundle in enumerate(bundles):
        cut = orders.cuts.get((bundle.pack, bundle.members[0]), ())
        size = TYPES[view.nodes[packs[bundle.pack].reduce].attr["T"].type]
        if len(bundle.members) == 1 and cut and sum(one for one, _ in cut) == bundle.elements * size:
            found[number] = [(one // size, priority) for one, priority in cut]
    return found


def _rank_pieces(bundles: Sequence[Bundle], orders: Orders, cuts: Mapping[int, Sequence[tuple[int, float]]]) -> None:
    """Numbers bundles and pieces by the plan's priorities; what it does not name comes last, in the order of places."""
    keys: list[tuple[float, int, int, int]] = []  # priority, place, bundle, piece
    for number, bundle in enumerate(bundles):
        mine = [(bundle.pack, member) for member in bundle.members]
        place = min(orders.places[key] for key in mine)
        own = min(orders.planned.get(key, math.inf) for key in mine)
        keys += [(one, place, number, piece) for piece, (_, one) in enumerate(cuts.get(number, [(0, own)]))]
    rank_of = {(number, piece): rank for rank, (_, _, number, piece) in enumerate(sorted(keys))}
    for number, bundle in enumerate(bundles):
        ranks = [rank_of[number, piece] for piece in range(len(cuts.get(number, "x")))]
        bundle.rank = bundle.first_rank = min(ranks)
        if number in cuts:
            bundle.pieces = tuple((size, rank) for (size, _), rank in zip(cuts[number], ranks, strict=True))
            bundle.follows_link = False


def _planned_pieces(bundle: Bundle, element_bytes: int, orders: Orders) -> int:
    """The smallest that the plan wants for any member; whole if it wants that, 0 if it says nothing."""
    wanted = [size for member in bundle.members if (size := orders.pieces.get((bundle.pack, member))) is not None]
    if not wanted:
        return 0
    return min(filter(None, wanted), default=bundle.elements * element_bytes + _SLACK_BYTES)


def _rank(bundles: Sequence[Bundle], orders: Orders) -> None:
    """Numbers the bundles by their most urgent element; first halves that have priorities of their own before all."""

    def place(bundle: Bundle) -> int:
        return min(orders.places[bundle.pack, member] for member in bundle.members)

    def first(bundle: Bundle) -> list[float]:
        return [orders.first[bundle.pack, member] for member in bundle.members if (bundle.pack, member) in orders.first]

    keys = sorted({min(first(bundle)) for bundle in bundles if first(bundle)})
    for number, bundle in enumerate(sorted(bundles, key=place)):
        as_ready = orders.name == AS_READY
        bundle.rank = len(keys) + (0 if as_ready else number)
        bundle.first_rank = keys.index(min(first(bundle))) if first(bundle) else bundle.rank
