"""Numbers ordered transfers and their chunks: the ranks that the sender's counter is compared with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence

from tfsched.grappler.reading.transfers import Transfer


@dataclasses.dataclass(frozen=True)
class Cut:
    """How a transfer leaves: in ``chunks`` (2 or more) pieces of a tensor of ``shape``.

    Attributes:
      sizes: bytes of each; nothing where they are even.
      priorities: of each, where a plan gives them one.
    """

    chunks: int
    shape: tuple[int, ...]
    sizes: tuple[int, ...] = ()
    priorities: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True)
class Ranked:
    """A transfer and its place among the ordered ones between the same two tasks.

    Attributes:
      transfer: which.
      rank: how many transfers and chunks go before it, or before its first chunk; of :func:`as_urgent`, that of another.
      count: how many transfers and chunks there are.
      cut: how it leaves; None for whole.
      ranks: of each chunk, where they do not follow one another.
    """

    transfer: Transfer
    rank: int
    count: int
    cut: Cut | None = None
    ranks: tuple[int, ...] = ()


def number(
    groups: Iterable[Sequence[Transfer]],
    cut: Callable[[Transfer], Cut | None],
    priority: Callable[[Transfer], float | None] = lambda transfer: None,
) -> list[Ranked]:
    """Ranks 0..n-1 for the transfers and chunks of each group.

    The chunks of a transfer follow one another, but where a plan gives them priorities: then transfers and chunks go by
    their priorities, and what has none behind them.

    Args:
      groups: for each two tasks the transfers from one to the other, the first to go first.
      cut: how a transfer leaves.
      priority: of a transfer in the plan; None for none.
    """
    ranked: list[Ranked] = []
    for group in groups:
        cuts = [cut(transfer) for transfer in group]
        if any(
            one is not None and {*one.priorities} - {priority(transfer)} for transfer, one in zip(group, cuts, strict=True)
        ):
            ranked += _interleaved(group, cuts, priority)
            continue
        sizes = [1 if one is None else one.chunks for one in cuts]
        count, rank = sum(sizes), 0
        for transfer, size, one in zip(group, sizes, cuts, strict=True):
            ranked.append(Ranked(transfer, rank, count, one))
            rank += size
    return ranked


def as_they_come(groups: Iterable[Sequence[Transfer]], cut: Callable[[Transfer], Cut | None]) -> list[Ranked]:
    """One rank for all: policies that never wait send what is ready first. See ``number``."""
    return [one for group in groups for one in as_urgent([(transfer, 0) for transfer in group], cut)]


def as_urgent(group: Iterable[tuple[Transfer, int]], cut: Callable[[Transfer], Cut | None]) -> list[Ranked]:
    """Transfers that have the ranks of others, with all their chunks: they leave among those others, on the same link.

    Args:
      group: transfers between two tasks, with their ranks; ranks may be equal and missing.
      cut: how a transfer leaves.
    """
    cuts = [(transfer, rank, cut(transfer)) for transfer, rank in group]
    chunks = [1 if one is None else one.chunks for _, _, one in cuts]
    return [
        Ranked(transfer, rank, sum(chunks), one, (rank,) * size if size > 1 else ())
        for (transfer, rank, one), size in zip(cuts, chunks, strict=True)
    ]


def _interleaved(
    group: Sequence[Transfer], cuts: Sequence[Cut | None], priority: Callable[[Transfer], float | None]
) -> list[Ranked]:
    """The ranks of one group with chunks that have priorities of their own."""
    keys: list[tuple[float, int, int]] = []  # priority, place of the transfer, chunk
    for place, (transfer, cut) in enumerate(zip(group, cuts, strict=True)):
        own = priority(transfer)
        own = math.inf if own is None else own
        chunks = 1 if cut is None else cut.chunks
        priorities = cut.priorities if cut is not None and cut.priorities else [own] * chunks
        keys += [(one, place, chunk) for chunk, one in enumerate(priorities)]
    rank_of = {(place, chunk): rank for rank, (_, place, chunk) in enumerate(sorted(keys))}
    result = []
    for place, (transfer, cut) in enumerate(zip(group, cuts, strict=True)):
        ranks = tuple(rank_of[place, chunk] for chunk in range(1 if cut is None else cut.chunks))
        result.append(Ranked(transfer, ranks[0], len(keys), cut, ranks if len(ranks) > 1 else ()))
    return result
