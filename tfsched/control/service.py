"""The control service: the calls of control.proto, answered from this process's scheduler. Needs grpcio."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from concurrent import futures
from typing import Any

import grpc

from tfsched.control import about, access, idle, messages
from tfsched.errors import TfschedError
from tfsched.ops.control import stats, transfers
from tfsched.version import __version__

_THREADS = 2
_CALLS = 8  # at a time; more are refused
_REQUEST_BYTES = 1 << 16
DEFAULT_TRANSFERS, MOST_TRANSFERS = 100, 1000


def get_stats(request: Any) -> Any:
    """tfsched.stats(), and how much this process computes nothing."""
    now, seen = stats(), idle.seen()
    return messages.Stats(
        numbers={key: value for key, value in now.items() if isinstance(value, int)},
        texts={key: value for key, value in now.items() if isinstance(value, str)},
        monotonic_us=time.monotonic_ns() // 1000,
        unix_us=time.time_ns() // 1000,
        watched_us=int(seen.seconds * 1e6),
        idle_us=int(seen.idle_s * 1e6),
    )


def get_transfers(request: Any) -> Any:
    """The newest of tfsched.transfers()."""
    limit = min(request.limit if request.limit > 0 else DEFAULT_TRANSFERS, MOST_TRANSFERS)
    answer = messages.Transfers()
    for row in transfers(last=limit):
        answer.transfers.add(
            name=about.cut(row.pop("name")),
            sender=row.pop("from"),
            receiver=row.pop("to"),
            dropped=bool(row.pop("dropped")),
            **row,
        )
    return answer


def get_description(request: Any) -> Any:
    """Who this process is."""
    answer = messages.Description(tasks=about.tasks(), host=socket.gethostname(), pid=os.getpid(), version=__version__)
    for part, state in about.parts().items():
        answer.parts[part].update(state)
    return answer


_ANSWERS: dict[str, Callable[[Any], Any]] = {
    "GetStats": get_stats,
    "GetTransfers": get_transfers,
    "GetDescription": get_description,
}


class _Guard(grpc.ServerInterceptor):
    """Lets only calls through that bring the token."""

    def __init__(self, token: str):
        self._token = token

        def refuse(request: bytes, context: Any) -> None:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is missing or wrong")

        self._refusal = grpc.unary_unary_rpc_method_handler(refuse)

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Called by gRPC before each call."""
        sent = next((value for key, value in details.invocation_metadata if key == "authorization"), None)
        return continuation(details) if access.fits(sent, self._token) else self._refusal


def start(address: str, port: int, token: str | None) -> tuple[Any, int]:
    """Serves at once.

    Args:
      address: an IP address.
      port: 0 for a free one.
      token: None for none.

    Returns:
      gRPC's server, and its port.

    Raises:
      TfschedError: the port cannot be listened on.
    """
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            lambda request, context, answer=_ANSWERS[name]: answer(request),
            request_deserializer=request_class.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        for name, (request_class, _) in messages.CALLS.items()
    }
    server = grpc.server(
        futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="tfsched-control"),
        handlers=[grpc.method_handlers_generic_handler(messages.SERVICE, handlers)],
        interceptors=[_Guard(token)] if token is not None else [],
        maximum_concurrent_rpcs=_CALLS,
        options=[
            ("grpc.so_reuseport", 0),  # two processes on one port would answer in turns
            ("grpc.max_receive_message_length", _REQUEST_BYTES),
            ("grpc.max_metadata_size", _REQUEST_BYTES),
        ],
    )
    bound, reason = 0, ""
    try:
        bound = server.add_insecure_port(access.joined(address, port))
    except RuntimeError as error:  # older versions return 0
        reason = f" ({str(error).splitlines()[0]})"
    if not bound:
        raise TfschedError(
            f"the control service cannot listen on {access.joined(address, port)}{reason}; choose another port, 0 for a "
            "free one."
        )
    server.start()
    return server, bound
