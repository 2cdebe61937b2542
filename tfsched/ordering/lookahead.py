"""Lookahead, tfsched's own ordering: the best of the quick orderings, improved along the critical path."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence

from . import _paths
from ._fast_schedule import FastSchedule
from .dag import Dag
from .layer import layer
from .makespan import list_schedule
from .registry import register
from .tao import tao
from .tio import tio

# What a search may cost: schedules run, times ops. A million are some 2 s.
MOST_OPS_RUN = 1_000_000
SCHEDULES_PER_RECV = 200
# Annealing begins with accepting a loss of this part of the makespan every third time, and ends with a fiftieth of it.
WARM, COOLED = 0.01, 0.02
PASSES = 4


@register("lookahead")
def lookahead(dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0) -> dict[str, float]:
    """Return distinct priorities 0..n-1 whose list schedule, in whole ns, is never longer than that of TIO, TAO and layer.

    TAO is greedy: it looks at what the next transfer activates and no further. Here whole schedules are compared.

    1. Candidates: TIO, TAO, layer, and largest tail first (the longest path after a recv, PACE's rule).
    2. Forward-backward passes on each: the schedule is moved as late as possible, which puts aside what has slack, and the
       order in which its transfers then start is a new candidate; as long as that helps.
    3. Descent from the best: what makes the step long is its critical path. A transfer on it that a computation waits
       for is moved ahead of those that were sent just before it, or those behind it; the first change that helps is kept.
    4. Where no such change helps any more, simulated annealing with what is left of the budget: seeded moves of one transfer
       by a short or a long way.
    5. Where that helped, tidying up: transfer by transfer back into the order of the best candidate of step 1, where that
       costs nothing, for what does not matter under these times may matter under slightly different ones.

    Times count in whole nanoseconds: where ops take only a few of these, a schedule may be longer than TAO's under the
    times as given. It ends at a lower bound (each resource alone between longest
    paths), and after 200 schedules per recv or a million ops run, whichever is first: seconds at 100,000 ops, where not much
    more than 1 and 2 is left.

    It does not help where TAO reaches the bound already (chains, most sequential models), and its result is only as good as
    the op times: it needs them from a trace. `seed` draws the random moves. Raises DagError for a bad time.
    """
    fast = FastSchedule(dag, times_us)
    if not fast.recvs:
        return {}
    search = _Search(fast, seed)
    tried: list[list[int]] = []

    def candidates() -> Iterator[list[int]]:
        """Cheap ones first: where one of them reaches the bound, TAO need not be run at all."""
        tail = _paths.tails(dag, fast.duration)
        yield sorted(fast.recvs, key=lambda i: (-tail[i], i))
        for quick in (layer, tio, tao):
            tried.append(fast.order_of(quick(dag, times_us)))
            yield tried[-1]

    search.start_from(candidates())
    search.descend()
    search.anneal()
    search.tidy()
    found = search.best_order
    if search.best > search.bound:
        # Whole ns and fractions of them may differ in the last digit; what has been run is compared by list_schedule.
        found = min([found, *tried], key=lambda order: list_schedule(dag, _numbered(dag, order), times_us).makespan_us)
    priorities = _numbered(dag, found)
    return {op.name: priorities[op.name] for op in dag.recvs}


def _numbered(dag: Dag, order: Sequence[int]) -> dict[str, float]:
    return {dag.ops[i].name: float(k) for k, i in enumerate(order)}


class _Search:
    """The best order so far, and what is left of the budget."""

    def __init__(self, fast: FastSchedule, seed: int) -> None:
        self.fast = fast
        self.draw = random.Random(seed)
        self.bound = fast.lower_bound()
        self.left = min(SCHEDULES_PER_RECV * len(fast.recvs) + 20, MOST_OPS_RUN // fast.size)
        self.best_order: list[int] = []
        self.best = -1
        self.best_start: list[int] = []
        self.base: list[int] = []  # the best candidate

    @property
    def over(self) -> bool:
        return self.left <= 0 or self.best == self.bound

    def try_order(self, order: Sequence[int]) -> int:
        """Run an order and keep it if it is the best; return its makespan."""
        self.left -= 1
        makespan, start = self.fast.forward(order)
        if self.best < 0 or makespan < self.best:
            self.best, self.best_start, self.best_order = makespan, start, list(order)
        return makespan

    def start_from(self, candidates: Iterator[list[int]]) -> None:
        """Steps 1 and 2."""
        spans: list[tuple[int, int, list[int]]] = []
        for order in candidates:  # all are run, whatever is left: the promise depends on it
            spans.append((self.try_order(order), len(spans), order))
            if self.best == self.bound:
                break
        self.base = self.best_order
        if self.over:
            return
        for span, _, order in sorted(spans, key=lambda item: item[:2]):
            for _ in range(PASSES):
                if self.over:
                    return
                _, start = self.fast.forward(order)
                self.left -= 2
                late = self.fast.backward([s + t for s, t in zip(start, self.fast.duration, strict=True)])
                order = sorted(self.fast.recvs, key=lambda i: (late[i], i))
                now = self.try_order(order)
                if now >= span:
                    break
                span = now

    def descend(self) -> None:
        """Step 3."""
        better = True
        while better and not self.over:
            before = self.best
            better = any(self.try_order(order) < before for order in self._moves() if not self.over)

    def anneal(self) -> None:
        """Step 4."""
        count = len(self.best_order)
        order, now = self.best_order, self.best
        warmth = WARM * now
        cooling = COOLED ** (1 / max(self.left, 1))
        while not self.over and count > 1:
            place = self.draw.randrange(count)
            way = round(count ** self.draw.random()) * self.draw.choice((-1, 1))
            trial = order.copy()
            trial.insert(min(max(place + way, 0), count - 1), trial.pop(place))
            makespan = self.try_order(trial)
            if makespan <= now or self.draw.random() < math.exp((now - makespan) / max(warmth, 1e-9)):
                order, now = trial, makespan
            warmth *= cooling

    def tidy(self) -> None:
        """Step 5. A quarter of the search's budget, beside it."""
        if self.best_order == self.base or len(self.base) * self.fast.size > MOST_OPS_RUN // 4:
            return
        order, place = self.best_order, 0
        for recv in self.base:
            trial = [i for i in order if i != recv]
            trial.insert(place, recv)
            if trial == order or self.fast.forward(trial)[0] <= self.best:
                order, place = trial, place + 1
        self.best_order = order

    def _critical(self) -> list[list[int]]:
        """Per stretch of the critical path on a link: its recvs, in order of sending."""
        recvs = set(self.fast.recvs)
        stretches: list[list[int]] = []
        link = -1
        for i in self.fast.critical_path(self.best_start):
            if i in recvs and self.fast.resource[i] == link:
                stretches[-1].append(i)
            elif i in recvs:
                stretches.append([i])
            link = self.fast.resource[i] if i in recvs else -1
        return stretches

    def _moves(self) -> Iterator[list[int]]:
        """Orders with the end of a critical stretch moved ahead of its others, or one of these moved behind the end."""
        stretches = self._critical()
        place = {i: k for k, i in enumerate(self.best_order)}
        for stretch in reversed(stretches):
            end = stretch[-1]
            for other in _spread(stretch[:-1][::-1]):
                if place[other] < place[end]:
                    yield self._moved(end, place[other])
                    yield self._moved(other, place[end])
        for stretch in stretches:  # what is sent first decides when computation starts
            for other in _spread(stretch[1:]):
                if place[stretch[0]] < place[other]:
                    yield self._moved(other, place[stretch[0]])

    def _moved(self, recv: int, position: int) -> list[int]:
        order = [i for i in self.best_order if i != recv]
        order.insert(position, recv)
        return order


def _spread(items: Sequence[int]) -> list[int]:
    """At most 12 of the items: the nearest ones, then ever wider apart, and the last."""
    places = sorted({round(1.6**k) - 1 for k in range(40)} | {0, 1, 2, 3, len(items) - 1})
    return [items[k] for k in places if 0 <= k < len(items)][:12]
