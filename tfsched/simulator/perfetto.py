"""Draws a simulated run as a timeline that Perfetto and chrome://tracing load, as `tfsched timeline` draws a traced one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def perfetto(spans: Sequence[Any], path: Sequence[Any]) -> dict[str, Any]:
    """A Trace Event Format object.

    One process a task: its computation, and one track for each task that it sends to, as often as its spans overlap. Updates
    are their server's. The critical path is a process of its own, with why each part did not begin earlier.
    """
    tracks: dict[tuple[str, str], list[tuple[float, float, str, dict[str, Any]]]] = {}
    for op, resource, start_us, end_us, step in spans:
        task, mark, track = resource.partition("/")
        if not mark:
            task, mark, receiver = resource.partition(">")
            track = f"to {receiver}" if mark else resource
        tracks.setdefault((task, track), []).append((start_us, end_us, op, {"step": step}))
    for op, resource, start_us, end_us, why in path:
        row = (start_us, end_us, op, {"resource": resource, "why": why})
        tracks.setdefault(("critical path", "last step"), []).append(row)
    return {"traceEvents": list(_events(tracks)), "displayTimeUnit": "ms"}


def _events(tracks: dict[tuple[str, str], list[tuple[float, float, str, dict[str, Any]]]]) -> Iterable[dict[str, Any]]:
    processes = {task: pid for pid, task in enumerate(sorted({task for task, _ in tracks}, key=_by_number), start=1)}
    threads: dict[str, int] = {}
    for task, pid in processes.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": task}}
    for (task, track), rows in sorted(tracks.items(), key=lambda item: (_by_number(item[0][0]), _by_number(item[0][1]))):
        pid, first = processes[task], threads.get(task, 0)
        ends: list[float] = []  # per lane, when it is free again
        for start_us, end_us, op, args in sorted(rows, key=lambda row: row[:3]):
            lane = next((number for number, free_us in enumerate(ends) if free_us <= start_us), len(ends))
            if lane == len(ends):
                ends.append(end_us)
                name = track if lane == 0 else f"{track} {lane + 1}"
                yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": first + lane, "args": {"name": name}}
            ends[lane] = end_us
            span = {"ph": "X", "name": op, "pid": pid, "tid": first + lane, "ts": start_us, "dur": end_us - start_us}
            yield {**span, "args": args}
        threads[task] = first + len(ends)


def _by_number(name: str) -> tuple[str, int]:
    head = name.rstrip("0123456789")
    return head, int(name[len(head) :] or 0)
