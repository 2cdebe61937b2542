"""The schedule of a Decision: pieces, groups, preemption and a start-up cost per message, on one worker's DAG."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from typing import NamedTuple

from ._messages import Planned, plan_messages
from .dag import Dag
from .decision import Decision
from .makespan import Schedule
from .registry import OrderingError

# What is left of a message that is not worth cutting, in µs: below it only rounding is left.
_NOTHING_US = 1e-6


class Sent(NamedTuple):
    """A stretch of time in which a link sends one message; a message that is cut is sent in several."""

    link: str
    recvs: tuple[str, ...]
    start_us: float
    end_us: float


def evaluate(dag: Dag, decision: Mapping[str, float], times_us: Mapping[str, float] | None = None) -> Schedule:
    """Run `dag` as `decision` says, and return the schedule in µs: a recv ends with its last byte.

    The model is that of `list_schedule`, to which it is equal for whole recvs without credit: each resource does one
    thing at a time, a free one takes the best that is ready and never waits. In addition

    * a message costs its link's start-up once, however many recvs (groups) or how little of one (pieces) it carries;
    * with `credit_bytes`, messages are handed to the wire as long as they fit, or if nothing is there, and what was handed
      over is not overtaken (ByteScheduler, section 4.2); without, the link chooses when it is free;
    * if `preemptive`, a message of smaller priority cuts the one that is sent; what is left of it costs another start-up.

    Deterministic, O((V + E + messages) log). Raises DagError for a bad time or priority, and OrderingError for groups or
    messages that cannot be sent (over two links, or one that waits for itself).
    """
    return _Run(dag, Decision.of(decision), times_us).schedule()


def sent(dag: Dag, decision: Mapping[str, float], times_us: Mapping[str, float] | None = None) -> list[Sent]:
    """Return what each link sends and when, in order of start; see `evaluate`."""
    run = _Run(dag, Decision.of(decision), times_us)
    run.schedule()
    return sorted(run.sent, key=lambda s: (s.start_us, s.end_us))


class _Link:
    """One link: what is ready, what the wire holds, and what is being sent."""

    def __init__(self) -> None:
        self.ready: list[tuple[tuple[float, float, int], int]] = []
        self.held: list[int] = []  # handed over and not yet being sent, oldest first
        self.held_bytes = 0
        self.sending: int | None = None
        self.since_us = 0.0


class _Run:
    """One run. Compute ops are served as in `list_schedule`; links serve messages."""

    def __init__(self, dag: Dag, decision: Decision, times_us: Mapping[str, float] | None) -> None:
        self.dag = dag
        self.decision = decision
        self.duration_us = dag.times_us(times_us)
        self.messages: list[Planned] = plan_messages(dag, decision, times_us)
        self.links = {message.link: _Link() for message in self.messages}
        self.missing = [len(message.recvs) for message in self.messages]
        self.wire_left_us = [message.wire_us for message in self.messages]
        self.messages_of: dict[int, list[int]] = {i: [] for i in dag.recv_indices}
        for m, message in enumerate(self.messages):
            for i in message.recvs:
                self.messages_of[i].append(m)
        self.unsent = {i: len(messages) for i, messages in self.messages_of.items()}
        self.rank = [0] * len(dag.ops)
        for rank, i in enumerate(dag.topological_order):
            self.rank[i] = rank
        self.waiting = [len(inputs) for inputs in dag.input_indices]
        self.ready: dict[str, list[tuple[int, int]]] = {name: [] for name in dag.resources}
        self.idle = set(dag.resources)
        self.start_us = [math.inf] * len(dag.ops)
        self.end_us = [math.inf] * len(dag.ops)
        self.changed: dict[str, None] = {}
        # (time, turn, op or message, is a message's end, version): turns keep the order of what ends together.
        self.events: list[tuple[float, int, int, str, int]] = []
        self.version = [0] * len(self.messages)
        self.turn = 0
        self.now_us = 0.0
        self.sent: list[Sent] = []

    def schedule(self) -> Schedule:
        for i, count in enumerate(self.waiting):
            if count == 0:
                self._make_ready(i)
        while self.changed or self.events:
            for resource in list(self.changed):
                if resource in self.links:
                    self._serve_link(self.links[resource])
                else:
                    self._serve_compute(resource)
            self.changed.clear()
            if not self.events:
                break
            self.now_us = self.events[0][0]
            while self.events and self.events[0][0] == self.now_us:
                _, _, what, kind, version = heapq.heappop(self.events)
                if kind == "op":
                    self.idle.add(self.dag.ops[what].resource)
                    self.changed[self.dag.ops[what].resource] = None
                    self._finish(what)
                elif kind == "wake":
                    self._offer(what)
                elif version == self.version[what]:
                    self._delivered(what)
        late = next((i for i, end in enumerate(self.end_us) if end == math.inf), None)
        if late is not None:
            raise OrderingError(
                f"op {self.dag.ops[late].name!r} never runs: a message waits for a recv that waits for the message; "
                "do not group a recv with one that depends on it"
            )
        names = [op.name for op in self.dag.ops]
        return Schedule(
            max(self.end_us), dict(zip(names, self.start_us, strict=True)), dict(zip(names, self.end_us, strict=True))
        )

    def _at(self, when_us: float, what: int, kind: str) -> None:
        self.turn += 1
        version = self.version[what] if kind == "message" else 0
        heapq.heappush(self.events, (when_us, self.turn, what, kind, version))

    def _make_ready(self, i: int) -> None:
        if i not in self.messages_of:
            resource = self.dag.ops[i].resource
            heapq.heappush(self.ready[resource], (self.rank[i], i))
            self.changed[resource] = None
            return
        for m in self.messages_of[i]:
            self.missing[m] -= 1
            if self.missing[m] == 0:
                if self.messages[m].not_before_us > self.now_us:
                    self._at(self.messages[m].not_before_us, m, "wake")
                else:
                    self._offer(m)

    def _offer(self, m: int) -> None:
        message = self.messages[m]
        heapq.heappush(self.links[message.link].ready, (message.key, m))
        self.changed[message.link] = None

    def _finish(self, i: int) -> None:
        self.end_us[i] = self.now_us
        for j in self.dag.consumers[i]:
            self.waiting[j] -= 1
            if self.waiting[j] == 0:
                self._make_ready(j)

    def _serve_compute(self, resource: str) -> None:
        if resource in self.idle and self.ready[resource]:
            i = heapq.heappop(self.ready[resource])[1]
            self.idle.remove(resource)
            self.start_us[i] = self.now_us
            self._at(self.now_us + self.duration_us[i], i, "op")

    def _serve_link(self, link: _Link) -> None:
        credit = self.decision.credit_bytes
        if self.decision.preemptive:
            self._preempt(link)
        elif credit:
            while link.ready and (
                (not link.held and link.sending is None)
                or link.held_bytes + self.messages[link.ready[0][1]].size_bytes <= credit
            ):
                m = heapq.heappop(link.ready)[1]
                link.held.append(m)
                link.held_bytes += self.messages[m].size_bytes
        if link.sending is None:
            if credit and not self.decision.preemptive:
                if link.held:
                    self._send(link, link.held.pop(0))
            elif link.ready:
                self._send(link, heapq.heappop(link.ready)[1])

    def _send(self, link: _Link, m: int) -> None:
        link.sending, link.since_us = m, self.now_us
        for i in self.messages[m].recvs:
            self.start_us[i] = min(self.start_us[i], self.now_us)
        self._at(self.now_us + self.messages[m].startup_us + self.wire_left_us[m], m, "message")

    def _preempt(self, link: _Link) -> None:
        m = link.sending
        if m is None or not link.ready or link.ready[0][0][0] >= self.messages[m].key[0]:
            return
        done_us = max(0.0, self.now_us - link.since_us - self.messages[m].startup_us)
        if self.wire_left_us[m] - done_us <= _NOTHING_US:
            return
        self.wire_left_us[m] -= done_us
        self.version[m] += 1
        self._record(link, m)
        link.sending = None
        heapq.heappush(link.ready, (self.messages[m].key, m))

    def _delivered(self, m: int) -> None:
        message = self.messages[m]
        link = self.links[message.link]
        self._record(link, m)
        link.sending = None
        link.held_bytes = max(0, link.held_bytes - message.size_bytes)
        self.changed[message.link] = None
        for i in message.recvs:
            self.unsent[i] -= 1
            if self.unsent[i] == 0:
                self._finish(i)

    def _record(self, link: _Link, m: int) -> None:
        names = tuple(self.dag.ops[i].name for i in self.messages[m].recvs)
        if self.now_us > link.since_us or not self.wire_left_us[m]:
            self.sent.append(Sent(self.messages[m].link, names, link.since_us, self.now_us))
