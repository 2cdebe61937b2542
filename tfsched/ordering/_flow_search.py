"""Candidates for `flow.best_flow`: messages of about one size, cut where a gradient is made or due, and then changed at
random."""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import random
from collections.abc import Sequence
from typing import NamedTuple

from .chain import Gradient, best_cuts

# Sizes that are tried first, around the best for one gradient of all the bytes: in steps of a fourth of an octave.
_STEPS = range(-10, 11)
# How far between the bound and the best so far the makespan lies for which messages are made.
_AIMS = (0.0, 0.3, 0.6, 1.0)
# Changes at random, each kept if it is better.
_CHANGES = 500
# What all candidates together may have, in messages: some seconds. Then the best so far is the answer.
_MOST_MESSAGES = 100_000
# Nothing is gained by smaller pieces than this part of all bytes, not even where a message costs nothing.
_MOST_PIECES = 500
# As good as the bound.
_NEAR = 1e-5


class Push(NamedTuple):
    """A message on the uplink; its most urgent gradient is `level`. `parts`: (gradient, time of its bytes)."""

    start: int
    end: int
    level: int
    parts: tuple[tuple[int, int], ...]


class _Shape(NamedTuple):
    """What makes a candidate.

    Messages are at most `size` long, or as long as the windows allow if the step takes `aim`; the first ones as long as
    `own` says. The uplink begins at the first release in `left` (positions), and is free at each of them.
    """

    size: int
    left: tuple[int, ...]
    aim: int | None = None
    own: tuple[int, ...] = ()


def pulls(pushes: Sequence[Push], lag: int) -> list[int]:
    """When the downlink begins each: whenever it is free, the most urgent one that is there (ties: pushed first)."""
    result = [0] * len(pushes)
    waiting: list[tuple[int, int]] = []
    now = arrived = 0
    for _ in pushes:
        if not waiting:
            now = max(now, pushes[arrived].end + lag)
        while arrived < len(pushes) and pushes[arrived].end + lag <= now:
            heapq.heappush(waiting, (-pushes[arrived].level, arrived))
            arrived += 1
        k = heapq.heappop(waiting)[1]
        result[k] = now
        now += pushes[k].end - pushes[k].start
    return result


class Search:
    """One search; `run` is called once."""

    def __init__(self, gradients: Sequence[Gradient], startup: int, lag: int, bound: int) -> None:
        self._gradients, self._startup, self._lag, self._bound = gradients, startup, lag, bound
        self._releases = [gradient.release for gradient in gradients]
        self._made = [0, *itertools.accumulate(gradient.wire for gradient in gradients)]
        self._makespan = 10**30
        self._pushed: list[Push] = []
        self._shape = _Shape(1, (0,))
        self._tried: dict[tuple[int, ...], None] = {}
        self._messages = 0

    def run(self) -> list[Push]:
        """The messages of the shortest step that was found. The same for the same instance."""
        total = self._made[-1]
        # One gradient of all the bytes is best sent so; without start-up pieces are as small as is reasonable.
        size = middle = max(1, math.isqrt(total * max(self._startup, total // 10_000)))
        for step in _STEPS:
            trial = max(1, round(middle * 2 ** (step / 4)))
            if self._try(_Shape(trial, self._left(trial, None))):
                size = trial
        for part in _AIMS:
            aim = self._bound + round(part * (self._makespan - self._bound))
            for step in range(-4, 9):
                trial = max(1, round(size * 2 ** (step / 8)))
                if not self._enough() and self._try(_Shape(trial, self._left(trial, aim), aim)):
                    size = trial
        for left in list(self._tried):
            for step in range(-4, 9, 2):
                trial = max(1, round(size * 2 ** (step / 8)))
                for chosen in (None, (self._bound + self._makespan) // 2):
                    if not self._enough():
                        self._try(_Shape(trial, left, chosen))
        draw = random.Random(0)
        for _ in range(_CHANGES):
            if self._enough():
                break
            self._try(self._changed(draw), draw.random() < 0.2)
        return self._pushed

    def _enough(self) -> bool:
        return self._makespan <= self._bound * (1 + _NEAR) or self._messages > _MOST_MESSAGES

    def _changed(self, draw: random.Random) -> _Shape:
        """The best shape with some of it drawn anew."""
        size, left, aim, own = self._shape
        count, what = len(self._gradients), draw.random()
        if what < 0.1:
            known = sorted({i for one in self._tried for i in one})
            left = tuple(sorted(draw.sample(known, draw.randrange(1, min(6, len(known)) + 1))))
        elif what < 0.2 and len(left) > 1:
            left = tuple(sorted({*left} - {draw.choice(left)}))
        elif what < 0.4:
            left = tuple(sorted({*left, draw.randrange(count)}))
        elif what < 0.6:
            other = draw.choice(left)
            moved = max(0, min(count - 1, other + draw.choice((-3, -2, -1, 1, 2, 3))))
            left = tuple(sorted({*left, moved} - {other} | {moved}))
        if draw.random() < 0.4:
            size = max(1, round(size * 2 ** draw.uniform(-0.4, 0.4)))
        if draw.random() < 0.3:
            more = round(draw.uniform(0, 1.5) * (self._makespan - self._bound))
            aim = None if draw.random() < 0.2 else self._bound + more
        what = draw.random()
        if what < 0.1:
            own = ()
        elif what < 0.5:
            lengths = [push.end - push.start - self._startup for push in self._pushed]
            k = draw.randrange(len(lengths))
            if what < 0.4 or k + 1 == len(lengths):
                lengths[k] = max(1, round(lengths[k] * 2 ** draw.uniform(-1, 1)))
            else:
                both = lengths[k] + lengths[k + 1]
                lengths[k] = max(1, round(both * draw.uniform(0.1, 0.9)))
                lengths[k + 1] = max(1, both - lengths[k])
            own = tuple(lengths[: k + 1] if what < 0.3 else lengths)
        return _Shape(size, left, aim, own)

    def _length(self, pushes: Sequence[Push]) -> int:
        return max(
            start + push.end - push.start + self._gradients[push.level].tail
            for start, push in zip(pulls(pushes, self._lag), pushes, strict=True)
        )

    def _try(self, shape: _Shape, unlimited: bool = False) -> bool:
        """Whether the shape is better than the best so far, under the best limit for when messages have to be pulled."""
        better = False
        low = self._bound
        high = 2 * self._bound
        limit = min(self._makespan, high)
        caps = self._caps(shape.size, shape.aim)
        for _ in range(8):
            pushes = self._pushes(shape, caps, 10**30 if unlimited else limit)
            self._messages += len(pushes)
            found = self._length(pushes)
            if found <= self._makespan:  # of equals the last: from it there may be a way on
                better = better or found < self._makespan
                self._makespan, self._pushed, self._shape = found, pushes, shape
            if found <= limit:
                high = min(limit, found)
            else:
                low, high = limit, min(high, found)
            if unlimited or high - low <= self._bound // 20_000:
                break
            limit = (low + high) // 2
        return better

    def _left(self, size: int, aim: int | None) -> tuple[int, ...]:
        """Releases at which the uplink has to be free: the cuts of a chain whose gradients pay for the handovers, too.

        All from j on, of P in all, cost P, a message for which the second link waits, and a start-up for each message.
        """
        chain: list[Gradient] = []
        work = before = 0
        for gradient, cap in zip(reversed(self._gradients), reversed(self._caps(size, aim)), strict=True):
            work += gradient.wire
            more = max(0, -(-self._startup * work // cap) - self._startup)
            need = max(before, work + min(cap, work) + self._startup + more)
            chain.append(gradient._replace(wire=need - before))
            before = need
        left = best_cuts(chain[::-1], self._startup).left
        self._tried[left] = None
        return left

    def _caps(self, size: int, aim: int | None) -> list[int]:
        """Per level the longest message up to `size` that the windows of it and of all before it allow in `aim`."""
        if aim is None:
            return [size] * len(self._gradients)
        result: list[int] = []
        for j, gradient in enumerate(self._gradients):
            work = self._made[-1] - self._made[j]
            spare = aim - self._lag - gradient.release - gradient.tail - work - self._startup
            # With messages of x the window takes work + startup * work / x + x + startup.
            root = spare * spare - 4 * self._startup * work
            one = (spare + math.isqrt(root)) // 2 if root > 0 and spare > 0 else math.isqrt(self._startup * work)
            size = min(size, max(1, one, self._made[-1] // _MOST_PIECES))
            result.append(size)
        return result

    def _pushes(self, shape: _Shape, caps: Sequence[int], limit: int) -> list[Push]:
        """The messages of a shape: the most urgent gradients first, and each pulled in time for a step of `limit` if
        possible."""
        gradients, startup, lag, total = self._gradients, self._startup, self._lag, self._made[-1]
        rest = [gradient.wire for gradient in gradients]
        cuts = [self._releases[i] for i in shape.left]
        now, down, sent, seen = cuts[0], 0, 0, 0
        stack: list[int] = []  # released and not all sent, the most urgent on top
        result: list[Push] = []
        while sent < total:
            released = bisect.bisect_right(self._releases, now)
            stack.extend(range(seen, released))
            seen = released
            free = self._made[released] - sent
            if not free:
                now = self._releases[released]
                continue
            level, k = stack[-1], len(result)
            most = min(caps[level] if k >= len(shape.own) else shape.own[k], free)
            place = bisect.bisect_right(cuts, now)
            if place < len(cuts):
                room = cuts[place] - now - startup
                later = self._releases[released]
                # It waits for more bytes as long as those that are there could still be sent before the cut.
                if room <= 0 or (most == free < room and cuts[place] - later - startup >= free):
                    now = min(cuts[place], later) if room > 0 else cuts[place]
                    continue
                most = min(most, room)
            # What its pull may take if it ends when its most urgent gradient is due.
            due = limit - gradients[level].tail
            late = min(due - down - startup, (due - now - 2 * startup - lag) // 2)
            if 0 < late < most:
                most = late
            parts: list[tuple[int, int]] = []
            amount = most
            while amount:
                i = stack[-1]
                parts.append((i, min(amount, rest[i])))
                rest[i] -= parts[-1][1]
                amount -= parts[-1][1]
                if not rest[i]:
                    stack.pop()
            result.append(Push(now, now + startup + most, level, tuple(parts)))
            now += startup + most
            down = max(down, now + lag) + startup + most
            sent += most
        return result
