"""What a planner decides: priorities, and how transfers are cut, merged and handed over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tfsched._rules import POLICIES

from . import _checks
from ._checks import show
from .registry import OrderingError


class Part(NamedTuple):
    """Bytes of one recv that travel in one message."""

    recv: str
    size_bytes: int


class Message(NamedTuple):
    """One message of an explicit plan; it is sent once all its recvs are ready, and not before `not_before_us`."""

    parts: tuple[Part, ...]
    not_before_us: float = 0.0


class Decision(dict[str, float]):
    """Recv name -> priority (smaller is sooner, equal allowed), and how the recvs are sent.

    It is a dict of priorities, so whatever takes an ordering's result takes a Decision.

    Attributes:
      partition_bytes: the largest piece that a recv or a group leaves in, 0 for whole; a wire that preempts needs no pieces.
      credit_bytes: bytes that may be with the wire before the next message waits; 0 for no limit.
      groups: recvs that are sent as one message; a recv in no group goes alone.
      merges: whether the planner decides what is sent as one; else `groups` is empty, and whoever sends may choose.
      contributions: recv -> priority of the first half of its all-reduce (members' own values), where that is another one.
      preemptive: a better message that becomes ready cuts the one on the wire.
      policy: the policy of cc/core that carries this out (docs/policies.md); None leaves the choice to the user.
      messages: the whole plan, message by message in order of preference, where a planner decides that much; it then counts
        instead of partition_bytes and groups. With `preemptive` it is for wires that do not preempt.
      divided_bytes: the largest piece in which a message may leave, one after the other in its place; 0 for whole. It
        changes no decision: members of an all-reduce sum a piece while the next one is on the wire.
      notes: what the planner has to say about its result, for people; JSON values.

    Raises OrderingError for a size below zero, an unknown policy, a recv that is in two groups, or one without a priority.
    """

    def __init__(
        self,
        priorities: Mapping[str, float],
        *,
        partition_bytes: int = 0,
        credit_bytes: int = 0,
        groups: Iterable[Iterable[str]] | None = None,
        contributions: Mapping[str, float] | None = None,
        preemptive: bool = False,
        policy: str | None = None,
        messages: Iterable[Message] = (),
        divided_bytes: int = 0,
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(priorities)
        self.partition_bytes = int(_checks.number(partition_bytes, "partition_bytes", OrderingError))
        self.credit_bytes = int(_checks.number(credit_bytes, "credit_bytes", OrderingError))
        self.groups = tuple(tuple(group) for group in groups or ())
        self.merges = groups is not None
        self.contributions = dict(contributions or {})
        self.preemptive = preemptive
        if policy is not None and policy not in POLICIES:
            raise OrderingError(f"the policy is {show(policy)}; give one of {', '.join(POLICIES)}")
        self.policy = policy
        self.messages = tuple(messages)
        self.divided_bytes = int(_checks.number(divided_bytes, "divided_bytes", OrderingError))
        self.notes = dict(notes or {})
        seen: set[str] = set()
        for group in self.groups:
            for name in group:
                if name in seen:
                    raise OrderingError(f"recv {show(name)} is grouped twice; leave it in one group")
                if name not in self:
                    raise OrderingError(f"recv {show(name)} is in a group and has no priority; give it one")
                seen.add(name)

    @classmethod
    def of(cls, priorities: Mapping[str, float]) -> Decision:
        """Return `priorities` itself if it is a Decision, else one that sends each recv whole and alone."""
        return priorities if isinstance(priorities, Decision) else cls(priorities)
