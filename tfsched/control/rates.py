"""Rates: differences of two readings of a process's counters; none where the process is another one."""

from __future__ import annotations

from collections.abc import Sequence

from tfsched.control.client import Answer


def per_second(before: Answer | None, after: Answer, *names: str) -> float | None:
    """By how much the sum of the counters ``names`` grew each second; None where that cannot be told."""
    if before is None or before.error or after.error or before.identity != after.identity:
        return None
    passed_s = after.time_s - before.time_s
    grown = sum(after.numbers.get(name, 0) - before.numbers.get(name, 0) for name in names)
    return grown / passed_s if passed_s > 0 and grown >= 0 else None


def ratio(before: Answer | None, after: Answer, upper: str, lower: str) -> float | None:
    """By how much the counter ``upper`` grew for each one by which ``lower`` did; None where that cannot be told."""
    grown, by = per_second(before, after, upper), per_second(before, after, lower)
    return grown / by if grown is not None and by else None


def idle_share(before: Answer | None, after: Answer) -> float | None:
    """The part of the time between two answers in which the process used no processor; None where that cannot be told."""
    if before is None or before.error or after.error or before.identity != after.identity:
        return None
    watched_s = after.watched_s - before.watched_s
    return (after.idle_s - before.idle_s) / watched_s if watched_s > 0 else None


def received_per_second(tasks: Sequence[str], answers: Sequence[Answer], window_s: float, limit: int) -> float | None:
    """Bytes each second that the other tasks have sent to ``tasks``: no task counts what it receives.

    Args:
      tasks: of one process, "/job:worker/task:0".
      answers: of all tasks, with transfers.
      window_s: how far back to look; shorter where a sender has released ``limit`` transfers in less.
      limit: how many transfers each was asked for.

    Returns:
      None where no other task has told its transfers.
    """
    wanted = {transfer_task(name) for name in tasks}
    total, told = 0.0, False
    for answer in answers:
        if answer.transfers is None or set(answer.tasks) & set(tasks):
            continue
        told = True
        begin_us = answer.unix_us - window_s * 1e6
        if len(answer.transfers) >= limit:  # older ones are not known
            begin_us = max(begin_us, answer.transfers[0].started_us)
        sent = sum(one.bytes for one in answer.transfers if one.receiver in wanted and one.released_us > begin_us)
        passed_us = answer.unix_us - begin_us
        total += sent / passed_us * 1e6 if passed_us > 0 else 0.0
    return total if told and wanted else None


def transfer_task(name: str) -> str:
    """A task as transfers name it: "/job:ps/task:0" -> "/job:ps/replica:0/task:0"."""
    return name if "/replica:" in name else name.replace("/task:", "/replica:0/task:")
