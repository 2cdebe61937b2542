"""Warns, once, when a transfer is on its way for so long that its step stands still: which, to whom, what is known of it."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfsched._log import log
from tfsched.ops.control import stats, transfers, under_way

VARIABLE = "TFSCHED_STALL_SECONDS"
# So long that no link that works is meant: a tensor of 400 MB takes less from 11 Mbit/s on. Who waits longer wants to know.
DEFAULT_S = 300.0
_LONGEST_POLL_S = 60.0
_POLLS = 4  # within the time after which it is warned
_END_S = 2
_NAMED = 3

Link = tuple[str, str]  # sender, receiver
Key = tuple[str, str, str, int, int]  # of a transfer: link, name, step, when it was started
Rows = Sequence[Mapping[str, Any]]

_WATCHES: dict[int, StallWatch] = {}


class Stalls:
    """Finds links on which something is under way and nothing has been released for a while. No thread, no clock.

    Args:
      seconds: how long a while is.
      read: tfsched.transfers, which is costly: it is called only before something is said.
    """

    def __init__(self, seconds: float, read: Callable[[], Rows]):
        self._seconds, self._read = seconds, read
        # Link with something under way -> (the oldest of it, when that was first seen as such).
        self._links: dict[Link, tuple[Key, float]] = {}
        self._queued: tuple[int, float] | None = None
        self._said: set[Key | None] = set()

    def look(self, now: Mapping[str, Any], under_way: Rows, now_s: float, unix_us: float) -> list[str]:
        """What is to be said now that was not said of the same transfer before.

        Args:
          now: tfsched.stats().
          under_way: transfers that are started and not released.
          now_s: of a clock that never goes back.
          unix_us: of the clock of transfers.
        """
        by_link: dict[Link, list[Mapping[str, Any]]] = {}
        for row in sorted(under_way, key=lambda row: row["started_us"]):
            by_link.setdefault((row["from"], row["to"]), []).append(row)
        before, self._links = self._links, {}
        for link, rows in by_link.items():
            key = _key(rows[0])
            old = before.get(link)
            self._links[link] = old if old and old[0] == key else (key, now_s)
        self._said &= {key for key, _ in self._links.values()} | {None}
        late = {
            link: key
            for link, (key, since_s) in self._links.items()
            if now_s - since_s >= self._seconds and key not in self._said
        }
        sentences = []
        if late:
            # Others may have overtaken it on the wire: then the link does not stand still.
            begin_us = unix_us - self._seconds * 1e6
            moving = {(row["from"], row["to"]) for row in self._read() if row["released_us"] > begin_us}
            for link, key in late.items():
                if link not in moving:
                    self._said.add(key)
                    sentences.append(_sentence(by_link[link], now, now_s - self._links[link][1], unix_us))
        return sentences + self._queue(now, now_s, bool(under_way))

    def _queue(self, now: Mapping[str, Any], now_s: float, under_way: bool) -> list[str]:
        """Something is queued, nothing is on its way, and nothing is begun."""
        if not now["queue_depth"] or under_way:
            self._queued = None
            self._said.discard(None)
            return []
        if self._queued is None or self._queued[0] != now["tasks"]:
            self._queued = (now["tasks"], now_s)
            self._said.discard(None)
        if now_s - self._queued[1] < self._seconds or None in self._said:
            return []
        self._said.add(None)
        return [
            f"{now['queue_depth']} ordered transfer(s) of this process have been queued for {now_s - self._queued[1]:.0f} s "
            f"with nothing on the wire; {_in_force(now)}. Is a rate cap of tfsched.configure too low?"
        ]


def _key(row: Mapping[str, Any]) -> Key:
    return row["from"], row["to"], row["name"], row["step_id"], row["started_us"]


def _sentence(under_way: Rows, now: Mapping[str, Any], waited_s: float, unix_us: float) -> str:
    first, *others = under_way
    known = [
        f"{what} {max(0.0, (unix_us - first[key]) / 1e6):.0f} s ago"
        for key, what in (
            ("requested_us", "asked for"),
            ("ready_us", "queued"),
            ("started_us", "handed to gRPC"),
        )
        if first[key] >= 0
    ]
    order = f"rank {first['rank']}" if first["rank"] >= 0 else "no rank"
    behind = ""
    if others:
        names = ", ".join(f"{row['name']} ({row['bytes']:,} bytes)" for row in others[:_NAMED])
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        behind = f" Behind it on the wire: {names}{more}."
    return (
        f"a step has waited {waited_s:.0f} s for {first['name']} ({first['bytes']:,} bytes, {order}) from {first['from']} "
        f"to {first['to']}: {', '.join(known)}, and nothing that was sent there has left since.{behind} In this process "
        f"{now['queue_depth']} ordered transfer(s) are queued and {now['on_wire_bytes']:,} bytes on the wire; "
        f"{_in_force(now)}. The network or the receiver stands still."
    )


def _in_force(now: Mapping[str, Any]) -> str:
    policy = "each graph's own policy" if now["policy"] == "graph" else f"policy {now['policy']}"
    credit = "credit" if now["credit_bytes"] < 0 else f"a credit of {now['credit_bytes']:,} bytes"
    rate = f", a cap of {now['rate_bps']:,} bit/s" if now["rate_bps"] else ""
    return f"{policy} and {credit}{rate} in force"


class StallWatch:
    """Looks every so often, on a thread of its own.

    Args:
      seconds: after how long it is warned, more than 0.
      warn: is given each sentence.
    """

    def __init__(self, seconds: float, warn: Callable[[str], None]):
        self._stalls, self._warn = Stalls(seconds, transfers), warn
        self._poll_s = min(seconds / _POLLS, _LONGEST_POLL_S)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfsched-stalls", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        before: tuple[int, int] | None = None
        settled: tuple[int, int] | None = None
        while not self._end.wait(self._poll_s):
            now = stats()
            sent = (now["tasks"], now["bypassed_tasks"])
            # To look at transfers takes milliseconds. Where nothing ordered is under way, something without a rank may be:
            # if so, and it holds up the step, nothing more is sent.
            idle = not now["queue_depth"] and not now["on_wire_bytes"]
            if idle and (sent != before or sent == settled):
                before = sent
                continue
            before = sent
            rows = under_way()
            for sentence in self._stalls.look(now, rows, time.monotonic(), time.time() * 1e6):
                self._warn(sentence)
            settled = sent if idle and not rows else None

    def close(self) -> None:
        """Ends it."""
        self._end.set()
        self._thread.join(_END_S)


def begin(seconds: float) -> None:
    """Watches this process from now on; once, and not at all with 0 seconds."""
    if seconds > 0 and os.getpid() not in _WATCHES:
        _WATCHES[os.getpid()] = StallWatch(seconds, lambda sentence: log.warning("%s", sentence))
        # A thread that Python has frozen in the middle of a C call would be ended there.
        atexit.register(_WATCHES[os.getpid()].close)
