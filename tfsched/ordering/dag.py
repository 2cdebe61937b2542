"""The DAG of one worker: ops, the resource each op occupies, and its reader and writer."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from . import _checks
from ._checks import show

FORMAT = "tfsched-dag/1"
MAX_SIZE_BYTES = 2**63 - 1
_DAG_KEYS = ("format", "resources", "ops")
_RESOURCE_KEYS = ("kind", "bandwidth_bps", "startup_us")
_OP_KEYS = ("name", "resource", "inputs", "time_us", "bytes")


class DagError(ValueError):
    """A DAG that cannot be used; the message is one sentence that names the op."""


class Resource(NamedTuple):
    """Something that runs one op at a time: a `compute` device or a `link` (channel)."""

    name: str
    kind: str
    bandwidth_bps: float | None = None
    startup_us: float = 0.0


class Op(NamedTuple):
    """One vertex. An op on a link is a recv; the others are computation.

    `time_us`, where given, wins over startup_us + size_bytes * 8 / bandwidth_bps of the link.
    A compute op without `time_us` counts as 0 until a time oracle supplies its time.
    """

    name: str
    resource: str
    inputs: tuple[str, ...] = ()
    time_us: float | None = None
    size_bytes: int | None = None


class Dag:
    """A validated, immutable DAG; everything derived is in op order (position in the file).

    Attributes:
      resources: name -> Resource.
      ops: all ops, in file order.
      index: op name -> position.
      input_indices: per op the positions of its distinct inputs.
      topological_order: positions; among the ops that could come next, the first in the file.

    Raises DagError for an empty dag, duplicate or unknown names, cycles and bad numbers.
    """

    def __init__(self, resources: Iterable[Resource], ops: Iterable[Op]) -> None:
        self.resources: dict[str, Resource] = {}
        for resource in resources:
            checked = _check_resource(resource)
            if checked.name in self.resources:
                raise DagError(f"resource {show(checked.name)} is given twice; rename one of them")
            self.resources[checked.name] = checked
        self.ops: tuple[Op, ...] = tuple(_check_op(op, i) for i, op in enumerate(ops))
        if not self.ops:
            raise DagError("the dag has no ops; give at least one")
        self.index: dict[str, int] = {op.name: i for i, op in enumerate(self.ops)}
        if len(self.index) != len(self.ops):
            twice = next(op.name for i, op in enumerate(self.ops) if self.index[op.name] != i)
            raise DagError(f"op {show(twice)} is given twice; rename one of them")
        self._times_us: list[float] = [_op_time_us(op, self.resources) for op in self.ops]
        self.input_indices: tuple[tuple[int, ...], ...] = self._resolve_inputs()
        self.topological_order: tuple[int, ...] = self._sort()

    def _resolve_inputs(self) -> tuple[tuple[int, ...], ...]:
        index = self.index
        resolved = []
        for op in self.ops:
            try:
                # An op may read one tensor twice (x * x); that is still one edge.
                resolved.append(tuple(dict.fromkeys([index[name] for name in op.inputs])))
            except KeyError as exc:
                raise DagError(
                    f"op {show(op.name)} has the unknown input {show(exc.args[0])}; add that op or remove the input"
                ) from None
        return tuple(resolved)

    def _sort(self) -> tuple[int, ...]:
        waiting = [len(inputs) for inputs in self.input_indices]
        ready = [i for i, count in enumerate(waiting) if count == 0]
        order = []
        consumers = self.consumers
        while ready:
            i = heapq.heappop(ready)
            order.append(i)
            for j in consumers[i]:
                waiting[j] -= 1
                if waiting[j] == 0:
                    heapq.heappush(ready, j)
        if len(order) != len(self.ops):
            raise DagError(self._describe_cycle(waiting))
        return tuple(order)

    def _describe_cycle(self, waiting: list[int]) -> str:
        # Every op still waiting has an input that is still waiting: walking back must repeat one.
        i = next(i for i, count in enumerate(waiting) if count)
        path: dict[int, None] = {}
        while i not in path:
            path[i] = None
            i = next(j for j in self.input_indices[i] if waiting[j])
        walk = list(path)
        cycle = [self.ops[j].name for j in reversed(walk[walk.index(i) :])]
        shown = [show(name) for name in cycle + cycle[:1]]
        if len(shown) > 10:
            shown[5:-4] = [f"({len(shown) - 9} more)"]
        return f"op {shown[0]} waits for itself: {' -> '.join(shown)}; remove one of these inputs"

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """Per op the positions of the ops that read it, ascending."""
        result: list[list[int]] = [[] for _ in self.ops]
        for i, inputs in enumerate(self.input_indices):
            for j in inputs:
                result[j].append(i)
        return tuple(map(tuple, result))

    @cached_property
    def recv_indices(self) -> tuple[int, ...]:
        """Positions of the recv ops (the ops on links), in file order."""
        links = {name for name, resource in self.resources.items() if resource.kind == "link"}
        return tuple(i for i, op in enumerate(self.ops) if op.resource in links)

    @cached_property
    def recvs(self) -> tuple[Op, ...]:
        """The recv ops, in file order."""
        return tuple(self.ops[i] for i in self.recv_indices)

    def times_us(self, override: Mapping[str, float] | None = None) -> list[float]:
        """Return the time of every op in file order, in µs.

        A name in `override` replaces the dag's own time; names that are not in the dag are ignored,
        since a trace holds more ops than one worker's partition.
        Raises DagError for an override that is not a finite number of zero or more.
        """
        if not override:
            return self._times_us.copy()
        missing = object()
        result = []
        for op, own_us in zip(self.ops, self._times_us, strict=True):
            value: Any = override.get(op.name, missing)
            if value is missing:
                result.append(own_us)
            elif type(value) is float and 0.0 <= value < math.inf:
                result.append(value)
            else:
                result.append(_checks.number(value, f"the time of op {show(op.name)}", DagError))
        return result

    @classmethod
    def from_json(cls, source: str | bytes | Mapping[str, Any]) -> Dag:
        """Build a Dag from "tfsched-dag/1" JSON (text, or the decoded object). Raises DagError."""
        data = _checks.read_object(source, "the dag", DagError)
        _checks.check_format(data, FORMAT, "the dag", DagError)
        _checks.known_keys(data, _DAG_KEYS, "the dag", DagError)
        resources, ops = data.get("resources"), data.get("ops")
        if not isinstance(resources, Mapping):
            raise DagError(f'the dag\'s "resources" is {show(resources)}; give an object')
        if not isinstance(ops, (list, tuple)):
            raise DagError(f'the dag\'s "ops" is {show(ops)}; give a list')
        return cls(
            [_resource_from_json(name, entry) for name, entry in resources.items()],
            [_op_from_json(entry, position) for position, entry in enumerate(ops)],
        )

    def to_json(self) -> dict[str, Any]:
        """Return the "tfsched-dag/1" object; `from_json` of it gives an equal dag."""
        resources: dict[str, Any] = {}
        for resource in self.resources.values():
            entry: dict[str, Any] = {"kind": resource.kind}
            if resource.bandwidth_bps is not None:
                entry["bandwidth_bps"] = resource.bandwidth_bps
            if resource.kind == "link":
                entry["startup_us"] = resource.startup_us
            resources[resource.name] = entry
        ops = []
        for op in self.ops:
            entry = {"name": op.name, "resource": op.resource}
            if op.time_us is not None:
                entry["time_us"] = op.time_us
            if op.size_bytes is not None:
                entry["bytes"] = op.size_bytes
            entry["inputs"] = list(op.inputs)
            ops.append(entry)
        return {"format": FORMAT, "resources": resources, "ops": ops}


def _check_resource(resource: Resource) -> Resource:
    name = _checks.name(resource.name, "a resource's name", DagError)
    what = f"resource {show(name)}"
    if resource.kind not in ("compute", "link"):
        raise DagError(f'{what} has kind {show(resource.kind)}; give "compute" or "link"')
    bandwidth_bps = resource.bandwidth_bps
    if bandwidth_bps is not None:
        bandwidth_bps = _checks.number(bandwidth_bps, f"the bandwidth_bps of {what}", DagError, positive=True)
    startup_us = _checks.number(resource.startup_us, f"the startup_us of {what}", DagError)
    if resource.kind == "compute" and (bandwidth_bps is not None or startup_us):
        raise DagError(f"{what} is a compute resource with bandwidth_bps or startup_us; remove it")
    return Resource(name, resource.kind, bandwidth_bps, startup_us)


def _check_op(op: Op, position: int) -> Op:
    if not isinstance(op, Op):
        raise DagError(f"op number {position} is {show(op)}; give an Op")
    name, resource, inputs, time_us, size_bytes = op
    if type(name) is not str or not name:
        _checks.name(name, f"the name of op number {position}", DagError)
    if not isinstance(inputs, (list, tuple)):
        raise DagError(f"the inputs of op {show(name)} are {show(inputs)}; give a list of names")
    for item in inputs:
        if not isinstance(item, str):
            raise DagError(f"op {show(name)} has the input {show(item)}; give an op's name")
    if time_us is not None and not (type(time_us) is float and 0.0 <= time_us < math.inf):
        time_us = _checks.number(time_us, f"the time_us of op {show(name)}", DagError)
    if size_bytes is not None and not (type(size_bytes) is int and size_bytes >= 0):
        size = _checks.number(size_bytes, f"the size in bytes of op {show(name)}", DagError)
        if size != int(size) or isinstance(size_bytes, float):
            raise DagError(f"the size in bytes of op {show(name)} is {show(size_bytes)}; give a whole number")
        size_bytes = int(size_bytes)
    if size_bytes is not None and size_bytes > MAX_SIZE_BYTES:
        raise DagError(f"the size in bytes of op {show(name)} is {show(size_bytes)}; give at most 2^63 - 1")
    return Op(name, resource, tuple(inputs), time_us, size_bytes)


def _op_time_us(op: Op, resources: Mapping[str, Resource]) -> float:
    resource = resources.get(op.resource) if isinstance(op.resource, str) else None
    if resource is None:
        raise DagError(
            f'op {show(op.name)} is on the unknown resource {show(op.resource)}; add it to "resources" or correct the name'
        )
    if op.time_us is not None:
        return op.time_us
    if resource.kind == "compute":
        return 0.0
    what = f"recv op {show(op.name)} on link {show(resource.name)}"
    if op.size_bytes is None:
        raise DagError(f"{what} has neither time_us nor a size in bytes; give one of them")
    if resource.bandwidth_bps is None:
        raise DagError(f"{what} has no time_us; give it, or give the link a bandwidth_bps")
    time_us = resource.startup_us + op.size_bytes * 8e6 / resource.bandwidth_bps
    if not math.isfinite(time_us):
        raise DagError(f"{what} takes forever at that bandwidth_bps; correct it")
    return time_us


def _resource_from_json(name: str, entry: object) -> Resource:
    what = f"resource {show(name)}"
    if not isinstance(entry, Mapping):
        raise DagError(f"{what} is {show(entry)}; give an object")
    _checks.known_keys(entry, _RESOURCE_KEYS, what, DagError)
    if "kind" not in entry:
        raise DagError(f'{what} has no "kind"; give "compute" or "link"')
    if "bandwidth_bps" in entry and entry["bandwidth_bps"] is None:
        raise DagError(f"the bandwidth_bps of {what} is null; give a number or leave it out")
    return Resource(name, entry["kind"], entry.get("bandwidth_bps"), entry.get("startup_us", 0.0))


def _op_from_json(entry: object, position: int) -> Op:
    if type(entry) is not dict and not isinstance(entry, Mapping):
        raise DagError(f"op number {position} is {show(entry)}; give an object")
    try:
        op = Op(
            entry["name"],
            entry["resource"],
            entry["inputs"],
            entry.get("time_us"),
            entry.get("bytes"),
        )
    except KeyError as exc:
        label = f"op {show(entry['name'])}" if "name" in entry else f"op number {position}"
        raise DagError(f'{label} has no "{exc.args[0]}"; add it') from None
    if len(entry) > 3:
        label = f"op {show(op.name)}"
        _checks.known_keys(entry, _OP_KEYS, label, DagError)
        for key in ("time_us", "bytes"):
            if key in entry and entry[key] is None:
                raise DagError(f"the {key} of {label} is null; give a number or leave it out")
    return op


def with_link(dag: Dag, bandwidth_bps: float | None, startup_us: float | None) -> Dag:
    """Return the same DAG on other links: a recv whose bytes are known takes their time, not the one it was traced with.

    `bandwidth_bps` is in bits per second, `startup_us` what each message costs besides its bytes; None leaves the DAG's own.
    Raises DagError for a bad value.
    """
    if bandwidth_bps is None and startup_us is None:
        return dag
    links = {name for name, resource in dag.resources.items() if resource.kind == "link"}
    resources = [
        resource._replace(
            bandwidth_bps=resource.bandwidth_bps if bandwidth_bps is None else bandwidth_bps,
            startup_us=resource.startup_us if startup_us is None else startup_us,
        )
        if name in links
        else resource
        for name, resource in dag.resources.items()
    ]
    rates = {resource.name: resource.bandwidth_bps for resource in resources}
    ops = [
        op._replace(time_us=None)
        if op.resource in links and op.size_bytes is not None and rates[op.resource] is not None
        else op
        for op in dag.ops
    ]
    return Dag(resources, ops)
