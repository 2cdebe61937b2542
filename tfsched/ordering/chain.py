"""The best messages for a training step's gradients: one link, a start-up for each message, cutting and merging at will."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

# Cuts so far, newest first: ((side, position), the rest); empty at the beginning.
_Trail = tuple[Any, ...]
# (first of left, first of right) -> fewest cuts, and which.
_States = dict[tuple[int, int], tuple[int, _Trail]]


class Gradient(NamedTuple):
    """Made at `release`, `wire` long on the link, and followed by `tail` that needs no link; whole numbers of one unit."""

    release: int
    wire: int
    tail: int


class Slot(NamedTuple):
    """One message: the link is busy with it from `start` to `end`, its start-up first. `parts`: (gradient, time of its
    bytes)."""

    start: int
    end: int
    parts: tuple[tuple[int, int], ...]


class Cuts(NamedTuple):
    """Where messages begin and end: at the releases of `left`, and a tail before the makespan for each of `right`.

    Both hold positions of gradients, ascending, and end with the last gradient.
    """

    makespan: int
    left: tuple[int, ...]
    right: tuple[int, ...]


def is_opposed(gradients: Sequence[Gradient]) -> bool:
    """Whether neither releases nor tails descend: what is made last is needed first."""
    return all(a.release <= b.release and a.tail <= b.tail for a, b in itertools.pairwise(gradients))


def value(gradients: Sequence[Gradient], startup: int, left: Sequence[int], right: Sequence[int]) -> int:
    """Return what the makespan of cuts comes to by the formula of `best_cuts`: its right-hand side."""
    result, work = 0, 0
    for j in range(len(gradients) - 1, -1, -1):
        work += gradients[j].wire
        inside = sum(j <= i < len(gradients) - 1 for i in (*left, *right))
        release = gradients[min(i for i in left if i >= j)].release
        tail = gradients[min(i for i in right if i >= j)].tail
        result = max(result, work + release + tail + startup * (inside + 1))
    return result


def best_cuts(gradients: Sequence[Gradient], startup: int, at_least: int = 0) -> Cuts:
    """Return the cuts of a shortest schedule, or of one as short as `at_least`; gradients are opposed (`is_opposed`).

    The problem: one machine, and messages that occupy it for a start-up and the time of their bytes. A message may carry
    parts of any gradients that were released before it begins; a gradient is complete with the last message that has a part
    of it. Minimise max(completion + tail). docs/optimal.md proves that the least value is

        min over L, R of  max over j of  P(j) + r(l) + q(k) + s * (1 + |L from j| + |R from j|)

    with P(j) the work of j and all later gradients, l and k the first of L and R that are not before j, and |L from j|, |R
    from j| the members from j on without the last gradient, which L and R always have. This is a search of the least value
    by halving, and for each value a dynamic programme over j from the last gradient down: (l, k) -> fewest cuts. A
    cut is made only where the value would be exceeded without one: made earlier in that walk it would save less.
    O(N^3 log(sum of times)) at worst. Raises ValueError for no gradients, or ones that are not opposed.
    """
    if not gradients:
        raise ValueError("there are no gradients; give at least one")
    if not is_opposed(gradients):
        raise ValueError("releases and tails have to ascend together; sort the gradients by release")
    last = gradients[-1]
    low = max(at_least, last.release + startup + last.wire + last.tail)
    found = _within(gradients, startup, low)
    if found:
        return Cuts(low, *found)
    work = sum(gradient.wire for gradient in gradients)
    high = work + last.release + last.tail + startup  # all in one message
    best = _within(gradients, startup, high)
    assert best is not None
    while low + 1 < high:  # no cuts within low, cuts within high
        middle = (low + high) // 2
        found = _within(gradients, startup, middle)
        if found:
            high, best = middle, found
        else:
            low = middle
    return Cuts(high, *best)


def _within(gradients: Sequence[Gradient], startup: int, limit: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return (left, right) with a value of at most `limit`, or None if there are none."""
    last = len(gradients) - 1
    states: _States = {(last, last): (0, ())}
    work = 0
    for j in range(last, -1, -1):
        work += gradients[j].wire
        room = limit - work - startup
        release, tail = gradients[j].release, gradients[j].tail
        after: _States = {}

        def keep(left: int, right: int, count: int, trail: _Trail, after: _States = after) -> None:
            if (left, right) not in after or after[left, right][0] > count:
                after[left, right] = (count, trail)

        for (left, right), (count, trail) in states.items():
            r, q = gradients[left].release, gradients[right].tail
            if r + q + startup * count <= room:
                keep(left, right, count, trail)
                continue
            if j == last:
                continue
            one = startup * (count + 1)
            fits_left, fits_right = release + q + one <= room, r + tail + one <= room
            if fits_left:
                keep(j, right, count + 1, ((0, j), trail))
            if fits_right:
                keep(left, j, count + 1, ((1, j), trail))
            if not fits_left and not fits_right and release + tail + one + startup <= room:
                keep(j, j, count + 2, ((0, j), ((1, j), trail)))
        states = after
        if not states:
            return None
    _, trail = min(states.values(), key=lambda state: state[0])
    sides: tuple[list[int], list[int]] = ([], [])
    while trail:
        (side, j), trail = trail
        sides[side].append(j)
    return (*sides[0], last), (*sides[1], last)


def fill(gradients: Sequence[Gradient], startup: int, cuts: Cuts) -> list[Slot]:
    """Return the messages of `cuts`, in order of time; gradients that take no time are in the middle one.

    A gradient may use the slots between its release and its due time. The slots of a later gradient are among those of an
    earlier one, so that later ones are served first and each takes what is free, the earliest first.
    """
    starts = [gradients[i].release for i in cuts.left]
    ends = [cuts.makespan - gradients[i].tail for i in reversed(cuts.right)]
    edges = [*starts, *ends]
    middle = len(starts) - 1
    # Innermost gradient that may use a slot: those from 0 to this one may.
    most = [*cuts.left, *cuts.right[-2::-1]]
    slots = list(_worth_it(edges, startup, middle))
    free = {number: end - start - startup for number, start, end in slots}
    parts: dict[int, list[tuple[int, int]]] = {number: [] for number, _, _ in slots}
    for i in range(len(gradients) - 1, -1, -1):
        rest = gradients[i].wire
        if rest == 0:
            parts[middle].append((i, 0))
        for number, _, _ in slots:
            taken = min(rest, free[number]) if i <= most[number] else 0
            if taken:
                parts[number].append((i, taken))
                free[number] -= taken
                rest -= taken
        assert rest == 0, "the cuts leave no room for a gradient"
    return [Slot(start, start + startup + sum(t for _, t in parts[number]), tuple(parts[number]))
            for number, start, end in slots if parts[number]]  # fmt: skip


def _worth_it(edges: Sequence[int], startup: int, middle: int) -> Iterator[tuple[int, int, int]]:
    """(number, start, end) of the slots that are longer than the start-up; what would go into others fits beside them."""
    left: list[tuple[int, int, int]] = []
    for number in range(middle - 1, -1, -1):
        if edges[number + 1] - edges[number] > startup:
            left.append((number, edges[number], edges[number + 1]))
    yield from reversed(left)
    yield middle, edges[middle], edges[middle + 1]
    for number in range(middle + 1, len(edges) - 1):
        if edges[number + 1] - edges[number] > startup:
            yield number, edges[number], edges[number + 1]
