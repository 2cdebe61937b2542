"""Metrics for Prometheus: tfsched.stats() in its format, read when somebody asks. Needs prometheus_client."""

from __future__ import annotations

import functools
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from tfsched.control import about, access, idle
from tfsched.control.fields import FIELDS, Field, Kind, metric_name
from tfsched.errors import TfschedError
from tfsched.ops.control import stats
from tfsched.version import __version__

PATH = "/metrics"
_READ_TIMEOUT_S = 5
_CONNECTIONS = 4  # at a time; more are closed


class StatsCollector(Collector):
    """This process's counters for any registry: ``prometheus_client.REGISTRY.register(StatsCollector())``."""

    def __init__(self) -> None:
        idle.begin()

    def describe(self) -> Iterable[Any]:
        """Nothing: to be registered must not read anything."""
        return ()

    def collect(self) -> Iterator[Any]:
        """Called at each scrape."""
        now = stats()
        texts = {key: value for key, value in now.items() if isinstance(value, str)}
        info = InfoMetricFamily("tfsched", "this process's tfsched")
        info.add_metric([], {**texts, "version": __version__, "task": ",".join(about.tasks())})
        yield info
        for key, value in now.items():
            if isinstance(value, str):
                continue
            field = FIELDS.get(key, Field(Kind.GAUGE, f"{key} of tfsched.stats()"))
            family = CounterMetricFamily if field.kind is Kind.COUNTER else GaugeMetricFamily
            metric = family(metric_name(key), field.help)
            metric.add_metric([], value * field.scale)
            yield metric
        seen = idle.seen()
        yield CounterMetricFamily("tfsched_watched_seconds", "time in which this process was watched", value=seen.seconds)
        yield CounterMetricFamily("tfsched_idle_seconds", "of that time, what it used no processor", value=seen.idle_s)


class _Server(ThreadingMixIn, WSGIServer):
    """A few connections at a time, each for a few seconds: askers cannot take a training's threads or memory."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *arguments: Any):
        self._free = threading.BoundedSemaphore(_CONNECTIONS)
        super().__init__(*arguments)

    def server_bind(self) -> None:
        # HTTPServer's would look up the host's full name, which can take seconds.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An asker that goes away is no news."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _READ_TIMEOUT_S

    def log_message(self, *arguments: Any) -> None:
        """Scrapes are no news."""


def _application(token: str | None) -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    registry = CollectorRegistry()
    registry.register(StatsCollector())
    inner = make_wsgi_app(registry)

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        def refuse(status: str, *headers: tuple[str, str]) -> Iterable[bytes]:
            start_response(status, [("Content-Type", "text/plain"), *headers])
            return [status.encode()]

        if token is not None and not access.fits(environ.get("HTTP_AUTHORIZATION"), token):
            return refuse("401 Unauthorized", ("WWW-Authenticate", "Bearer"))
        if environ["PATH_INFO"] != PATH:
            return refuse("404 Not Found")
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return refuse("405 Method Not Allowed", ("Allow", "GET, HEAD"))
        return inner(environ, start_response)

    return application


def start(address: str, port: int, token: str | None) -> tuple[WSGIServer, int]:
    """Serves at once.

    Args:
      address: an IP address.
      port: 0 for a free one.
      token: None for none.

    Returns:
      The server, whose ``shutdown`` and ``server_close`` end it, and its port.

    Raises:
      TfschedError: the port cannot be listened on.
    """
    try:
        server = (_Server6 if ":" in address else _Server)((address, port), _Handler)
    except OSError as error:
        raise TfschedError(
            f"metrics cannot be served on {access.joined(address, port)} ({error.strerror or error}); choose another port, "
            "0 for a free one."
        ) from None
    server.set_app(_application(token))
    serve = functools.partial(server.serve_forever, poll_interval=0.1)
    threading.Thread(target=serve, name="tfsched-metrics", daemon=True).start()
    return server, server.server_port
