"""The messages of a training step with parameter servers: two links one behind the other, a start-up for each message."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from ._flow_search import Search, pulls
from .chain import Gradient, best_cuts, is_opposed

__all__ = ["Flow", "Gradient", "Sublot", "best_flow", "check", "lower_bound", "one_window"]


class Sublot(NamedTuple):
    """One message: on the uplink from `push` and on the downlink from `pull`, each for the start-up and the bytes' time.

    `parts`: (gradient, time of its bytes).
    """

    push: int
    pull: int
    parts: tuple[tuple[int, int], ...]


class Flow(NamedTuple):
    """Messages in order of their pushes, what the step takes with them, and what no other messages take less than."""

    makespan: int
    bound: int
    sublots: tuple[Sublot, ...]


def best_flow(gradients: Sequence[Gradient], startup: int, lag: int = 0) -> Flow:
    """Return the shortest step that was found, and a bound that no step is below; gradients are opposed.

    The problem (docs/optimal.md, "Servers"): a message may carry parts of any gradients that were released before it begins
    on the uplink. It occupies the uplink and then, `lag` later at the earliest, the downlink, each for a start-up and
    the time of its bytes. A gradient is complete when all its parts are pulled. Minimise max(completion + tail). All in
    whole units of one time; `wire` is the time that a gradient's bytes take on one link.

    The downlink always takes the most urgent message that is there, as servers do: it never waits for a more urgent one.
    The messages are those of a heuristic, which is deterministic. Where `makespan` is `bound`, none are better. Raises
    ValueError for no gradients, ones that are not opposed, and ones without bytes.
    """
    if not gradients:
        raise ValueError("there are no gradients; give at least one")
    if not is_opposed(gradients):
        raise ValueError("releases and tails have to ascend together; sort the gradients by release")
    if min(gradient.wire for gradient in gradients) < 1:
        raise ValueError("a gradient takes no time on the link; give at least 1")
    bound = lower_bound(gradients, startup, lag)
    pushes = Search(gradients, startup, lag, bound).run()
    sublots = tuple(Sublot(p.start, begin, p.parts) for p, begin in zip(pushes, pulls(pushes, lag), strict=True))
    return Flow(check(gradients, startup, sublots, lag), bound, sublots)


def lower_bound(gradients: Sequence[Gradient], startup: int, lag: int = 0) -> int:
    """Return a makespan that no messages are below, even if pulls are cut and merged anew; gradients are opposed.

    The larger of two: that of the windows, max over j of r(j) + lag + q(j) + `one_window` of the work from j on; and that of
    the uplink alone (`chain.best_cuts`) with a start-up and the lag behind it.
    """
    result, work = 0, 0
    for gradient in reversed(gradients):
        work += gradient.wire
        result = max(result, gradient.release + gradient.tail + one_window(work, startup))
    return lag + max(result, best_cuts(gradients, startup).makespan + startup)


def one_window(work: int, startup: int) -> int:
    """Return the time in which `work` is pushed and pulled at the soonest, rounded up to a whole unit.

    It is the least (m + 1) (work / m + startup) over m, with m messages of equal size.
    """
    if not startup:
        return work  # in ever more messages
    near = max(1, math.isqrt(work // startup))
    return min(-(-(m + 1) * (work + m * startup) // m) for m in (near, near + 1))


def check(gradients: Sequence[Gradient], startup: int, sublots: Sequence[Sublot], lag: int = 0) -> int:
    """Return the makespan of messages that are given in order of their pushes.

    Raises ValueError, with what is wrong, where a message begins before a gradient in it is made, or its pull before its
    push is through, where a link would carry two messages at once, and where a gradient is not sent exactly once.
    """
    sent = [0] * len(gradients)
    makespan = 0
    spans: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for number, (push, pull, parts) in enumerate(sublots):
        length = startup + sum(amount for _, amount in parts)
        for i, amount in parts:
            if push < gradients[i].release:
                raise ValueError(f"message {number} begins at {push}, before gradient {i} is made; begin it later")
            if amount < 0:
                raise ValueError(f"message {number} carries {amount} of gradient {i}; give 0 or more")
            sent[i] += amount
            makespan = max(makespan, pull + length + gradients[i].tail)
        if pull < push + length + lag:
            raise ValueError(f"message {number} is pulled from {pull} on, before its push is through; pull it later")
        spans[0].append((push, push + length))
        spans[1].append((pull, pull + length))
    for name, link in zip(("uplink", "downlink"), spans, strict=True):
        for one, other in itertools.pairwise(sorted(link)):
            if other[0] < one[1]:
                raise ValueError(f"the {name} carries two messages at {other[0]}; begin one of them later")
    for i, gradient in enumerate(gradients):
        if sent[i] != gradient.wire:
            raise ValueError(f"of gradient {i}, {sent[i]} of {gradient.wire} is sent; send all of it once")
    return makespan
