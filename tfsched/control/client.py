"""Asks the control services of several tasks at a time; one that does not answer is told as such, with the reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import grpc

from tfsched.control import access, messages

TIMEOUT_S = 2.0
_OPTIONS = [
    ("grpc.enable_http_proxy", 0),  # a proxy would be asked for hosts that only this network knows
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),  # a task that is started again is soon there again
]


@dataclasses.dataclass
class Answer:
    """What one task has said.

    Attributes:
      address: that was asked.
      error: why there is nothing else; "" where there is.
      identity: tells the process from one that takes its place later.
      tasks: names, "/job:ps/task:0".
      time_s: when the counters were read; of the process's own clock.
      unix_us: the same, of the clock of transfers.
      watched_s, idle_s: how long the process has been watched, and how much of that it used no processor.
      numbers, texts: of tfsched.stats().
      parts: part of tfsched -> what it says of itself.
      transfers: the newest ones; None where they were not asked for.
    """

    address: str
    error: str = ""
    identity: tuple[str, int] = ("", 0)
    tasks: tuple[str, ...] = ()
    time_s: float = 0.0
    unix_us: int = 0
    watched_s: float = 0.0
    idle_s: float = 0.0
    numbers: dict[str, int] = dataclasses.field(default_factory=dict)
    texts: dict[str, str] = dataclasses.field(default_factory=dict)
    parts: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    transfers: list[Any] | None = None


class Tasks:
    """Connections to tasks; a context manager.

    Args:
      addresses: "host:port" each.
      token: None for none.
      timeout_s: how long an answer may take.
    """

    def __init__(self, addresses: Sequence[str], token: str | None = None, timeout_s: float = TIMEOUT_S):
        self._metadata = [("authorization", access.header(token))] if token is not None else []
        self._timeout_s = timeout_s
        self._channels = {address: grpc.insecure_channel(address, _OPTIONS) for address in addresses}
        self._calls = {
            (address, name): channel.unary_unary(
                f"/{messages.SERVICE}/{name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=answer_class.FromString,
            )
            for address, channel in self._channels.items()
            for name, (_, answer_class) in messages.CALLS.items()
        }

    def __enter__(self) -> Tasks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connections."""
        for channel in self._channels.values():
            channel.close()

    def ask(self, transfers: int = 0) -> list[Answer]:
        """What each task says now, in the order of the addresses; returns within the time limit.

        Args:
          transfers: how many of the newest transfers to ask for, too.
        """
        requests = {"GetStats": messages.StatsRequest(), "GetDescription": messages.DescriptionRequest()}
        if transfers:
            requests["GetTransfers"] = messages.TransfersRequest(limit=transfers)
        pending = {
            address: {
                name: self._calls[address, name].future(request, timeout=self._timeout_s, metadata=self._metadata)
                for name, request in requests.items()
            }
            for address in self._channels
        }
        return [self._answer(address, calls) for address, calls in pending.items()]

    def _answer(self, address: str, calls: dict[str, Any]) -> Answer:
        try:
            told = {name: call.result() for name, call in calls.items()}
        except grpc.RpcError as error:
            return Answer(address, self._reason(error))
        stats, who = told["GetStats"], told["GetDescription"]
        return Answer(
            address=address,
            identity=(who.host, who.pid),
            tasks=tuple(who.tasks),
            time_s=stats.monotonic_us / 1e6,
            unix_us=stats.unix_us,
            watched_s=stats.watched_us / 1e6,
            idle_s=stats.idle_us / 1e6,
            numbers=dict(stats.numbers),
            texts=dict(stats.texts),
            parts={part: dict(state) for part, state in who.parts.items()},
            transfers=list(told["GetTransfers"].transfers) if "GetTransfers" in told else None,
        )

    def _reason(self, error: Any) -> str:
        code, details = error.code(), str(error.details() or "")
        if code is grpc.StatusCode.UNAUTHENTICATED:
            return details
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"no answer within {self._timeout_s:g} s"
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return "another service than tfsched's, or another version of it"
        if code is grpc.StatusCode.UNAVAILABLE:
            return f"no answer ({details.rpartition(': ')[2] or 'unavailable'})"
        return f"{code.name}: {details}"
