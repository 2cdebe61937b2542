"""The Plan: the priorities of one ordering for the transfers of a graph, and its file format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from tfsched._rules import BLOCK_BYTES, LARGEST_MESSAGE_BYTES, MAX_CHUNKS, MIN_PARTITION_BYTES, exchange_bytes

from . import _checks, registry, servers
from ._checks import show
from ._messages import costs
from .carried import Piece, carried
from .dag import Dag
from .decision import Decision
from .regret import least_regret

FORMAT = "tfsched-plan/1"
_PLAN_KEYS = ("format", "algorithm", "transfers", "groups", "metadata")
_ENTRY_KEYS = ("name", "priority", "partition_bytes", "pieces", "contribution_priority")

_N = TypeVar("_N", int, float)
_V = TypeVar("_V")


class PlanError(ValueError):
    """A plan that cannot be used; the message is one sentence that names the transfer."""


@dataclass(frozen=True)
class Plan:
    """Priorities by transfer name, in listing order. Treat it as immutable.

    A transfer is called "<source tensor>@<receiving task>", for example
    "conv1/ReadVariableOp:0@/job:worker/replica:0/task:0". A gradient that is all-reduced is "<its tensor>@all-reduce", on
    all workers.

    Attributes:
      algorithm: the name of the ordering.
      priorities: transfer name -> finite priority; smaller is sooner, equal allowed.
      metadata: anything JSON can hold, for the reader of the file.
      extras: transfer name -> further keys of its entry, kept for later versions of the format.
      partition_bytes: transfer name -> the largest chunk that it leaves in, 0 for whole; only names that have a priority.
      groups: transfers that leave as one tensor, each in one group at most; all others leave alone. None where the ordering
        has no say: small all-reduced gradients are then joined by their size.
      contributions: transfer name -> priority of the first half of its all-reduce, where that is another one (DeAR).
      pieces: transfer name -> (bytes, priority) of each of its pieces, two or more, in the order of the tensor's bytes. They
        win over partition_bytes where the tensor has as many bytes on the wire.

    Raises PlanError for a bad name, priority, size or group, or what JSON cannot hold.
    """

    algorithm: str
    priorities: Mapping[str, float]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    extras: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    partition_bytes: Mapping[str, int] = field(default_factory=dict)
    groups: tuple[tuple[str, ...], ...] | None = None
    contributions: Mapping[str, float] = field(default_factory=dict)
    pieces: Mapping[str, tuple[Piece, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _checks.name(self.algorithm, "the plan's algorithm", PlanError)
        if not isinstance(self.priorities, Mapping):
            raise PlanError(f"the priorities are {show(self.priorities)}; give name -> number")
        priorities = {
            _checks.name(name, "a transfer's name", PlanError): _priority(name, value)
            for name, value in self.priorities.items()
        }
        object.__setattr__(self, "priorities", priorities)
        if not isinstance(self.partition_bytes, Mapping):
            raise PlanError(f"the partition sizes are {show(self.partition_bytes)}; give name -> bytes")
        sizes = {name: _partition_bytes(name, value) for name, value in self.partition_bytes.items()}
        for name in sizes:
            if name not in priorities:
                raise PlanError(f"transfer {show(name)} has a partition size and no priority; give it one")
        object.__setattr__(self, "partition_bytes", sizes)
        object.__setattr__(self, "groups", _groups(self.groups, priorities))
        object.__setattr__(self, "contributions", _contributions(self.contributions, priorities))
        object.__setattr__(self, "pieces", _pieces(self.pieces, priorities))
        for what in ("metadata", "extras"):
            value = getattr(self, what)
            if not isinstance(value, Mapping):
                raise PlanError(f"the plan's {what} is {show(value)}; give an object")
            try:
                json.dumps(dict(value), allow_nan=False)
            except (TypeError, ValueError, RecursionError) as exc:
                raise PlanError(f"the plan's {what} does not fit in JSON ({exc})") from None
            object.__setattr__(self, what, dict(value))

    def ranks(self) -> dict[str, int]:
        """Return transfer name -> rank 0..n-1.

        The rank is the number of transfers strictly before it in (priority, listing order), the
        integer the sender's counter is compared with (TicTac, section 5.1).
        """
        ordered = sorted(self.priorities, key=self.priorities.__getitem__)
        return {name: rank for rank, name in enumerate(ordered)}

    def priority_of(self, name: str) -> float | None:
        """Return the priority of a transfer, or None if the plan does not have it.

        Without an entry of the full name, the soonest entry of the same source tensor (the part
        before "@") serves, so that a plan traced on one worker serves the others as well.
        """
        if name in self.priorities:
            return self.priorities[name]
        return self._by_source.get(name.partition("@")[0])

    def partition_bytes_of(self, name: str) -> int | None:
        """Return the largest chunk of a transfer in bytes (0: whole), or None if the plan does not say.

        Looked up like the priority; of several entries of the same source tensor the smallest chunk serves.
        """
        if name in self.priorities:
            return self.partition_bytes.get(name)
        return self._partition_by_source.get(name.partition("@")[0])

    def pieces_of(self, name: str) -> tuple[Piece, ...]:
        """Return (bytes, priority) of each piece of a transfer; nothing if the plan does not cut it so.

        Looked up like the priority; of several entries of the same source tensor the soonest serves.
        """
        if name in self.priorities:
            return self.pieces.get(name, ())
        return self._pieces_by_source.get(name.partition("@")[0], ())

    @property
    def cuts(self) -> bool:
        """Whether it says of any transfer how large its chunks or pieces are."""
        return bool(self.partition_bytes or self.pieces)

    def renamed(self, others: Mapping[str, str]) -> Plan:
        """Return the plan with each transfer in `others` by its other name as well, in the same group."""

        def both(values: Mapping[str, _V]) -> dict[str, _V]:
            return {**values, **{others[name]: value for name, value in values.items() if name in others}}

        groups = self.groups
        if groups is not None:
            groups = tuple((*group, *(others[name] for name in group if name in others)) for group in groups)
        return Plan(
            self.algorithm,
            both(self.priorities),
            self.metadata,
            self.extras,
            both(self.partition_bytes),
            groups,
            both(self.contributions),
            both(self.pieces),
        )

    @cached_property
    def _by_source(self) -> dict[str, float]:
        return _least_by_source(self.priorities)

    @cached_property
    def _partition_by_source(self) -> dict[str, int]:
        whole = {name: size for name, size in self.partition_bytes.items() if size == 0}
        cut = {name: size for name, size in self.partition_bytes.items() if size > 0}
        return {**_least_by_source(whole), **_least_by_source(cut)}

    @cached_property
    def _pieces_by_source(self) -> dict[str, tuple[Piece, ...]]:
        soonest = sorted(self.pieces, key=self.priorities.__getitem__, reverse=True)
        return {name.partition("@")[0]: self.pieces[name] for name in soonest}

    def to_json(self) -> dict[str, Any]:
        """Return the "tfsched-plan/1" object, its transfers sorted by (priority, listing order)."""
        ordered = sorted(self.priorities, key=self.priorities.__getitem__)
        return {
            "format": FORMAT,
            "algorithm": self.algorithm,
            "transfers": [
                {
                    **self.extras.get(name, {}),
                    "name": name,
                    "priority": self.priorities[name],
                    **({"partition_bytes": self.partition_bytes[name]} if name in self.partition_bytes else {}),
                    **({"pieces": [list(piece) for piece in self.pieces[name]]} if name in self.pieces else {}),
                    **({"contribution_priority": self.contributions[name]} if name in self.contributions else {}),
                }
                for name in ordered
            ],
            **({} if self.groups is None else {"groups": [list(group) for group in self.groups]}),
            "metadata": dict(self.metadata),
        }

    @classmethod
    def from_json(cls, source: str | bytes | Mapping[str, Any]) -> Plan:
        """Build a Plan from "tfsched-plan/1" JSON (text, or the decoded object).

        Keys of a transfer that this version does not know are kept in `extras`. Raises PlanError.
        """
        data = _checks.read_object(source, "the plan", PlanError)
        _checks.check_format(data, FORMAT, "the plan", PlanError)
        _checks.known_keys(data, _PLAN_KEYS, "the plan", PlanError)
        for key in ("algorithm", "transfers"):
            if key not in data:
                raise PlanError(f'the plan has no "{key}"; add it')
        if not isinstance(data["transfers"], (list, tuple)):
            raise PlanError(f'the plan\'s "transfers" is {show(data["transfers"])}; give a list')
        priorities: dict[str, float] = {}
        extras: dict[str, Mapping[str, Any]] = {}
        partition_bytes: dict[str, int] = {}
        contributions: dict[str, float] = {}
        pieces: dict[str, Any] = {}
        for position, entry in enumerate(data["transfers"]):
            if not isinstance(entry, Mapping):
                raise PlanError(f"transfer number {position} is {show(entry)}; give an object")
            what = f"the name of transfer number {position}"
            if "name" not in entry:
                raise PlanError(f'transfer number {position} has no "name"; add it')
            name = _checks.name(entry["name"], what, PlanError)
            if "priority" not in entry:
                raise PlanError(f'transfer {show(name)} has no "priority"; add it')
            if name in priorities:
                raise PlanError(f"transfer {show(name)} is given twice; remove one")
            priorities[name] = _priority(name, entry["priority"])
            if "partition_bytes" in entry:
                partition_bytes[name] = _partition_bytes(name, entry["partition_bytes"])
            if "pieces" in entry:
                pieces[name] = entry["pieces"]
            if "contribution_priority" in entry:
                contributions[name] = entry["contribution_priority"]
            extra = {k: v for k, v in entry.items() if k not in _ENTRY_KEYS}
            if extra:
                extras[name] = extra
        groups = data.get("groups")
        about = data.get("metadata", {})
        return cls(data["algorithm"], priorities, about, extras, partition_bytes, groups, contributions, pieces)

    def save(self, path: str, open_fn: Callable[..., Any] = open) -> None:
        """Write the plan as JSON text. `open_fn(path, "w")` may open remote files.

        Raises PlanError if the file cannot be written.
        """
        text = json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"
        try:
            with open_fn(path, "w") as file:
                file.write(text)
        except Exception as exc:  # open_fn may raise errors of its own library
            raise PlanError(f"the plan cannot be written to {path!r} ({_one_line(exc)})") from exc

    @classmethod
    def load(cls, path: str, open_fn: Callable[..., Any] = open) -> Plan:
        """Read a plan written by `save`. Raises PlanError if it cannot be read or is no plan."""
        try:
            with open_fn(path, "r") as file:
                text = file.read()
        except Exception as exc:  # open_fn may raise errors of its own library
            raise PlanError(f"the plan {path!r} cannot be read ({_one_line(exc)})") from exc
        return cls.from_json(text)


def make_plan(
    dag: Dag, algorithm: str, times_us: Mapping[str, float] | None = None, seed: int = 0, pushed: bool = False
) -> Plan:
    """Run the ordering registered as `algorithm` on `dag` and return its Plan.

    `pushed`: each transfer is pushed to a server first and pulled from there, piece by piece. Orderings that can plan both
    ways (`servers.FLOWS`) do; others plan one.

    Raises OrderingError for an unknown name, DagError for bad times, and PlanError if the ordering
    returns anything but one finite priority for every recv of the dag.
    """
    ordering = registry.get(algorithm)
    if pushed and algorithm in servers.FLOWS:
        both = Decision.of(ordering(servers.pushed_first(dag), servers.both_ways(dag, times_us), seed=seed))
        return plan_of(dag, algorithm, servers.of_pulls(both, dag), seed)
    return plan_of(dag, algorithm, ordering(dag, times_us, seed=seed), seed)


def plan_exchanges(dag: Dag, algorithm: str, seed: int = 0, workers: int = 2) -> Plan:
    """Return the Plan of an ordering for all-reduces whose ops may take longer than in `dag` (`least_regret`).

    A message that the ordering sends whole may be as large as a model, and workers sum only what is there whole. So it
    leaves in pieces, one after the other in its place: of LARGEST_MESSAGE_BYTES, or what so many `workers` exchange at once
    where no plan says it, if that is more.

    Raises OrderingError if no ordering has that name.
    """
    decided = least_regret(dag, algorithm, seed)
    if isinstance(decided, Decision):
        decided.divided_bytes = max(decided.divided_bytes, LARGEST_MESSAGE_BYTES, exchange_bytes(workers))
    return plan_of(dag, algorithm, decided, seed)


def plan_of(dag: Dag, algorithm: str, priorities: Mapping[str, float], seed: int = 0) -> Plan:
    """Return the Plan of what an ordering returned for `dag`; a Decision's pieces come along, the rest is in the metadata.

    Of messages comes along what `carried` says: their order, what is whole in one, and in which pieces the others leave.
    Those of a preemptive decision do not: priorities and pieces of one size preempt on the wire.

    Raises PlanError for anything but one finite priority for every recv of the dag.
    """
    if not isinstance(priorities, Mapping):
        raise PlanError(f"ordering {algorithm!r} returned {show(priorities)}; return a dict")
    wanted = {op.name: None for op in dag.recvs}
    for name in wanted:
        if name not in priorities:
            raise PlanError(f"ordering {algorithm!r} gave no priority to recv op {show(name)}")
    for name in priorities:
        if name not in wanted:
            raise PlanError(f"ordering {algorithm!r} gave a priority to {show(name)}, not a recv")
    in_file_order = {name: priorities[name] for name in wanted}
    metadata: dict[str, Any] = {"recvs": len(wanted), "seed": seed}
    pieces: dict[str, int] = {}
    groups: tuple[tuple[str, ...], ...] | None = None
    contributions: dict[str, float] = {}
    parts: dict[str, tuple[Piece, ...]] = {}
    if isinstance(priorities, Decision):
        groups = priorities.groups if priorities.merges else None
        contributions = priorities.contributions
        size = priorities.partition_bytes
        pieces = dict.fromkeys(wanted, max(size, MIN_PARTITION_BYTES) if size else priorities.divided_bytes)
        metadata["policy"] = priorities.policy
        metadata["credit_bytes"] = priorities.credit_bytes
        metadata["preemptive"] = priorities.preemptive
        if priorities.notes:
            metadata["notes"] = priorities.notes
        if priorities.messages and not priorities.preemptive:
            sizes = {dag.ops[i].name: cost.size_bytes for i, cost in costs(dag, None).items()}
            places, groups, parts = carried(priorities, sizes)
            in_file_order = {name: places[name] for name in wanted}
            pieces = dict.fromkeys(wanted, priorities.divided_bytes)
    return Plan(algorithm, in_file_order, metadata, {}, pieces, groups, contributions, parts)


def combined(
    algorithm: str,
    plans: Iterable[Plan],
    groups: Iterable[Sequence[str]],
    partition_bytes: Mapping[str, int],
    pieces: Mapping[str, tuple[Piece, ...]],
    metadata: Mapping[str, Any],
) -> Plan:
    """Return one Plan of several for different transfers.

    `groups` take the place of theirs if one of them groups at all; a transfer stays in the first of several.
    `partition_bytes` and `pieces` win over theirs; empty pieces take theirs away. Raises PlanError for a name that none of
    them has.
    """
    listed = list(plans)
    taken: set[str] = set()
    kept: list[tuple[str, ...]] = []
    for group in groups:
        names = tuple(name for name in dict.fromkeys(group) if name not in taken)
        taken.update(names)
        if names:
            kept.append(names)
    return Plan(
        algorithm,
        {name: value for plan in listed for name, value in plan.priorities.items()},
        metadata,
        {},
        {**{name: size for plan in listed for name, size in plan.partition_bytes.items()}, **partition_bytes},
        tuple(kept) if any(plan.groups is not None for plan in listed) else None,
        pieces={
            name: cut
            for name, cut in {**{name: cut for plan in listed for name, cut in plan.pieces.items()}, **pieces}.items()
            if cut
        },
    )


def _priority(name: str, value: object) -> float:
    what = f"the priority of transfer {show(name)}"
    return _checks.number(value, what, PlanError, signed=True)


def _partition_bytes(name: str, value: object) -> int:
    what = f"the partition_bytes of transfer {show(name)}"
    if isinstance(value, bool) or not isinstance(value, int) or value < 0 or 0 < value < MIN_PARTITION_BYTES:
        raise PlanError(f"{what} is {show(value)}; give 0 (whole), or a whole number of {MIN_PARTITION_BYTES} or more")
    return value


def _pieces(value: object, known: Mapping[str, float]) -> dict[str, tuple[Piece, ...]]:
    if not isinstance(value, Mapping):
        raise PlanError(f"the pieces are {show(value)}; give name -> list of [bytes, priority]")
    result = {}
    for name, pieces in value.items():
        if name not in known:
            raise PlanError(f"transfer {show(name)} has pieces and no priority; give it one")
        what = f"the pieces of transfer {show(name)}"
        if not isinstance(pieces, (list, tuple)) or len(pieces) < 2 or len(pieces) > MAX_CHUNKS:
            raise PlanError(f"{what} are {show(pieces)}; give a list of 2 to {MAX_CHUNKS} pairs [bytes, priority]")
        cut = []
        for number, piece in enumerate(pieces):
            if not isinstance(piece, (list, tuple)) or len(piece) != 2:
                raise PlanError(f"{what} have {show(piece)}; give a pair [bytes, priority]")
            size, priority = piece
            fits = isinstance(size, int) and not isinstance(size, bool) and size >= MIN_PARTITION_BYTES
            if not fits or (size % BLOCK_BYTES and number + 1 < len(pieces)):
                raise PlanError(
                    f"{what} have one of {show(size)} bytes; give {MIN_PARTITION_BYTES} or more, and of all but the last a "
                    f"multiple of {BLOCK_BYTES}"
                )
            cut.append((size, _checks.number(priority, f"a priority in {what}", PlanError, signed=True)))
        result[name] = tuple(cut)
    return result


def _groups(value: object, known: Mapping[str, float]) -> tuple[tuple[str, ...], ...] | None:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or not all(isinstance(group, (list, tuple)) for group in value):
        raise PlanError(f"the plan's groups are {show(value)}; give a list of lists of names")
    seen: set[str] = set()
    for group in value:
        for name in group:
            _checks.name(name, "a name in the plan's groups", PlanError)
            if name in seen:
                raise PlanError(f"transfer {show(name)} is in the plan's groups twice; leave it in one")
            if name not in known:
                raise PlanError(f"transfer {show(name)} is in a group and has no priority; give it one")
            seen.add(name)
    return tuple(tuple(group) for group in value)


def _contributions(value: object, known: Mapping[str, float]) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise PlanError(f"the contributions' priorities are {show(value)}; give name -> number")
    for name in value:
        if name not in known:
            raise PlanError(f"transfer {show(name)} has a priority for contributions and none of its own; give it one")
    return {
        name: _checks.number(one, f"the contribution_priority of transfer {show(name)}", PlanError, signed=True)
        for name, one in value.items()
    }


def _least_by_source(values: Mapping[str, _N]) -> dict[str, _N]:
    """Source tensor (the part before "@") -> the smallest value of its transfers."""
    result: dict[str, _N] = {}
    for name, value in values.items():
        source = name.partition("@")[0]
        result[source] = min(value, result.get(source, value))
    return result


def _one_line(exc: Exception) -> str:
    return " ".join(str(exc).split()) or type(exc).__name__
