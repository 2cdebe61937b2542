"""What a simulation found: times, loads, waits, and the critical path."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from tfsched.ordering import efficiency, percentile, speedup, straggler_effect

from .bounds import bounds_us
from .cluster import Cluster
from .method import Method
from .native import Output
from .perfetto import perfetto
from .pieces import Scheduled
from .workload import Workload

COMPUTE, PULL, PUSH, ALL_REDUCE, UPDATE, MESSAGE = range(6)


class Span(NamedTuple):
    """An op, transfer or update on its resource; times in µs from the start of the simulation."""

    op: str
    resource: str
    start_us: float
    end_us: float
    step: int


class Segment(NamedTuple):
    """A piece of the critical path, and why it did not begin earlier."""

    op: str
    resource: str
    start_us: float
    end_us: float
    why: str


@dataclasses.dataclass(frozen=True)
class Result:
    """A simulated run. Times in µs; everything but `events` is of the measured steps.

    Attributes:
      method: its name.
      iteration_us: time of each step, from when a step begins to when the next one does, in the mean over the workers.
      median_us, p95_us: of those.
      utilisation: resource -> share of the time in which it was busy; of a link, the share of its bandwidth that was used.
      efficiency: ordering efficiency E of the median step (docs/metrics.md).
      speedup: S, the most that ordering can gain.
      upper_us, lower_us: the bounds behind both: compute + pulling + pushing, and the largest of them.
      straggler: mean straggler effect.
      waits_us: parameter -> mean time per step and worker for which computation stood still until it arrived.
      critical_path: of the last step: what its end waited for, and what that waited for, in order of time.
      critical_us: where that step's time went: the path by kind ("compute", "pull", "push", "all-reduce", "update"), and
        "idle" for what lies between: a step's overhead, processing at the receiver, a sender without credit.
      events: all that ran, if a timeline was asked for.
      messages: sent in all steps.
      pulled_bytes, pushed_bytes: delivered in all steps; an all-reduce counts once as pushed.
      end_us: when nothing was left to happen.
    """

    method: str
    iteration_us: list[float]
    median_us: float
    p95_us: float
    utilisation: dict[str, float]
    efficiency: float
    speedup: float
    upper_us: float
    lower_us: float
    straggler: float
    waits_us: dict[str, float]
    critical_path: list[Segment]
    critical_us: dict[str, float]
    events: list[Span]
    messages: int
    pulled_bytes: int
    pushed_bytes: int
    end_us: float

    def to_json(self) -> dict[str, Any]:
        """A JSON object of all but the events."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "events"}
        path = [segment._asdict() for segment in self.critical_path]
        return {**fields, "critical_path": path}

    def to_perfetto(self) -> dict[str, Any]:
        """The events as a Trace Event Format object for Perfetto; of a run without a timeline, the critical path only."""
        return perfetto(self.events, self.critical_path)


class _Names:
    """Names of what the engine numbers."""

    def __init__(self, workload: Workload, cluster: Cluster, scheduled: Scheduled, update_pieces: bool) -> None:
        self.ops = [op.name for op in scheduled.workload.ops] + ["(arrivals)"]
        self.pieces = [piece.label for piece in scheduled.pieces]
        self.servers = [piece.server for piece in scheduled.pieces]
        self.updated = self.pieces if update_pieces else [p.name for p in workload.parameters]
        self.server_of = {}
        for piece in scheduled.pieces:
            for i in piece.parameters:
                self.server_of[i] = piece.server
        self.update_pieces = update_pieces
        self.workers, self.exchanges = cluster.workers, cluster.architecture == "allreduce"

    def of(self, kind: int, what: int, worker: int) -> tuple[str, str]:
        """The name and the resource of an event."""
        if kind == COMPUTE:
            return self.ops[what], f"w{worker}/compute"
        if kind == PULL:
            return f"pull {self.pieces[what]}", f"ps{self.servers[what]}>w{worker}"
        if kind == PUSH:
            return f"push {self.pieces[what]}", f"w{worker}>ps{self.servers[what]}"
        if kind == ALL_REDUCE:
            return f"all-reduce {self.pieces[what]}", "ring"
        if kind == MESSAGE:
            sender, receiver = divmod(worker, self.workers)
            return f"exchange {self.pieces[what]}", f"w{sender}>w{receiver}"
        if self.exchanges:
            return f"update {self.updated[what]}", f"w{worker}/update"
        server = self.servers[what] if self.update_pieces else self.server_of[what]
        return f"update {self.updated[what]}", f"ps{server}/update"


def make_result(
    workload: Workload,
    cluster: Cluster,
    method: Method,
    scheduled: Scheduled,
    model: dict[str, Any],
    output: Output,
    timeline: bool,
) -> Result:
    """The Result of an engine's output."""
    warmup, ring = model["measured_from"], cluster.architecture == "ring"
    begin_us = output.begin_us.mean(axis=1)
    iteration_us = [float(us) for us in np.diff(begin_us)[warmup:]]
    median_us = percentile(iteration_us, 50)
    factor = float(model["compute_scale"][warmup:].mean())
    upper_us, lower_us = bounds_us(workload, cluster, factor)
    names = _Names(workload, cluster, scheduled, model["update_pieces"])
    steps = len(iteration_us)
    waits = output.tensor_wait_us / (steps * cluster.workers)
    path = _path(output, names)
    return Result(
        method=method.name,
        iteration_us=iteration_us,
        median_us=median_us,
        p95_us=percentile(iteration_us, 95),
        utilisation=_utilisation(model, output, ring),
        efficiency=efficiency(upper_us, lower_us, median_us),
        speedup=speedup(upper_us, lower_us) if lower_us > 0 else 0.0,
        upper_us=upper_us,
        lower_us=lower_us,
        straggler=_straggler(output, warmup),
        waits_us={p.name: float(us) for p, us in zip(workload.parameters, waits, strict=True)},
        critical_path=path,
        critical_us=_by_kind(
            path, float(output.begin_us[-2][output.begin_us[-1].argmax()]), float(output.begin_us[-1].max())
        ),
        events=_events(output, names) if timeline else [],
        messages=output.messages,
        pulled_bytes=output.pulled_bytes,
        pushed_bytes=output.pushed_bytes,
        end_us=output.end_us,
    )


def _utilisation(model: dict[str, Any], output: Output, ring: bool) -> dict[str, float]:
    window_us = output.window_us[1] - output.window_us[0]
    if not (math.isfinite(window_us) and window_us > 0):
        return {}
    result = {
        f"w{worker}/compute": float(busy) / window_us / model["streams"]
        for worker, busy in enumerate(output.compute_busy_us)
    }
    if ring:
        result["ring"] = output.ring_busy_us / window_us
        return result
    tasks: dict[int, list[str]] = {}
    for server, host in enumerate(model["server_host"]):
        tasks.setdefault(host, []).append(f"ps{server}")
    for worker, host in enumerate(model["worker_host"]):
        tasks.setdefault(host, []).append(f"w{worker}")
    for host, bps in enumerate(model["host_bps"]):
        name = "+".join(tasks[host])
        most_bytes = window_us * bps / 8e6
        result[f"{name} sending"] = float(output.sent_bytes[host]) / most_bytes
        result[f"{name} receiving"] = float(output.received_bytes[host]) / most_bytes
    return result


def _straggler(output: Output, warmup: int) -> float:
    times_us = (output.finish_us - output.begin_us[:-1])[warmup:]
    rows = [row for row in times_us if (row > 0).all()]
    return straggler_effect(rows) if rows else 0.0


def _events(output: Output, names: _Names) -> list[Span]:
    return [
        Span(*names.of(kind, what, worker), start_us, end_us, step)
        for (kind, what, worker, step, _, _), (_, start_us, end_us) in zip(
            output.event_numbers.tolist(), output.event_times_us.tolist(), strict=True
        )
    ]


def _path(output: Output, names: _Names) -> list[Segment]:
    numbers, times_us = output.event_numbers, output.event_times_us
    path = []
    for at in output.path.tolist():
        kind, what, worker, _, ready_event, busy_event = numbers[at].tolist()
        op, resource = names.of(kind, what, worker)
        if busy_event >= 0:
            why = f"{resource} was busy with {names.of(*numbers[busy_event][:3].tolist())[0]}"
        elif ready_event >= 0:
            why = f"waited for {names.of(*numbers[ready_event][:3].tolist())[0]}"
        else:
            why = "the step began"
        path.append(Segment(op, resource, float(times_us[at][1]), float(times_us[at][2]), why))
    return path


def _by_kind(path: list[Segment], begin_us: float, end_us: float) -> dict[str, float]:
    """The time from the beginning of the last step to its end, by what it was spent on."""
    times: dict[str, float] = {"idle": 0.0}
    at_us = begin_us
    for segment in path:
        kind = "compute" if segment.resource.endswith("/compute") else segment.op.partition(" ")[0]
        times["idle"] += max(segment.start_us - at_us, 0.0)
        times[kind] = times.get(kind, 0.0) + max(segment.end_us - max(segment.start_us, at_us), 0.0)
        at_us = max(segment.end_us, at_us)
    times["idle"] += max(end_us - at_us, 0.0)
    return times
