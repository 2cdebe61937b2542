"""What ran where and when, as the pictures and Perfetto take it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tfsched.ordering import Dag, Schedule
from tfsched.ordering.evaluate import sent

COMPUTE, LINK = "compute", "link"


class Span(NamedTuple):
    """`op` held `resource` from `start_us` to `end_us`."""

    op: str
    resource: str
    kind: str
    start_us: float
    end_us: float


def of_schedule(dag: Dag, schedule: Schedule) -> list[Span]:
    """The spans of a schedule in which nothing is cut."""
    return [
        Span(op.name, op.resource, dag.resources[op.resource].kind, schedule.start_us[op.name], schedule.end_us[op.name])
        for op in dag.ops
    ]


def of_decision(dag: Dag, decision: Any, schedule: Schedule) -> list[Span]:
    """The spans of `evaluate`'s schedule of `decision`: messages as they were sent, each stretch on its own."""
    spans = [span for span in of_schedule(dag, schedule) if span.kind == COMPUTE]
    for message in sent(dag, decision):
        name = message.recvs[0] if len(message.recvs) == 1 else f"{message.recvs[0]} + {len(message.recvs) - 1}"
        spans.append(Span(name, message.link, LINK, message.start_us, message.end_us))
    return spans


def perfetto(spans: Iterable[Span], process: str = "step") -> dict[str, Any]:
    """The spans as a trace for Perfetto (JSON object), one track a resource, times in µs from the step's start."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": process}}]
    tracks: dict[str, int] = {}
    for span in sorted(spans, key=lambda span: (span.resource, span.start_us)):
        if span.resource not in tracks:
            tracks[span.resource] = len(tracks)
            name = {"name": span.resource}
            events.append({"ph": "M", "name": "thread_name", "pid": 1, "tid": tracks[span.resource], "args": name})
        duration_us = span.end_us - span.start_us
        events.append(
            {"ph": "X", "name": span.op, "pid": 1, "tid": tracks[span.resource], "ts": span.start_us, "dur": duration_us}
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}
