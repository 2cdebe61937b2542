"""The Python end of the bridge: Grappler calls it with a graph, in whichever process owns the graph."""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import threading
from typing import Any

from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import meta_graph_pb2, rewriter_config_pb2

from tfsched._log import log, say_once
from tfsched._options import Options
from tfsched.grappler import crossed_functions, graph_records
from tfsched.grappler.barrier.crossing import has_crossed
from tfsched.grappler.reading.clients import is_function
from tfsched.grappler.reading.graph import task_of
from tfsched.grappler.rewrite import by_reason, explain, rewrite
from tfsched.grappler.strict import fail_with
from tfsched.ops import library

_UNCHANGED, _CHANGED = 0, 1


@dataclasses.dataclass
class PassStats:
    """What the pass has done in this process.

    Attributes:
      graphs: graphs that it was given. TensorFlow gives it most graphs twice.
      rewritten: of these, graphs that it changed.
      ordered: transfers that it gave a rank, summed over the changed graphs.
      exchanged: tensors that it divided all-reduces into, summed likewise.
      errors: graphs that it left as they were because of an error.
      last_error: the last such error's text; "" if there was none.
      last_report: of the last graph with transfers or all-reduces: how many are ordered, cut and left alone, and why.
      largest: the same of the graph with most of them, that is of the training step.
      crossing: of the last training graph with ``barrier=False``, how many variables are updated in the background.
      kept: of the same graph, name of each variable that is updated within the step -> why.
      options: the last graph's options, with what "auto" stands for; None before the first.
    """

    graphs: int = 0
    rewritten: int = 0
    ordered: int = 0
    errors: int = 0
    last_error: str = ""
    last_report: str = ""
    largest: str = ""
    crossing: int = 0
    kept: dict[str, str] = dataclasses.field(default_factory=dict)
    exchanged: int = 0
    options: Options | None = None


_STATS = PassStats()
_LOCK = threading.Lock()
_WARNED: set[str] = set()
# Client -> names of the variables of which it has been said that they keep the barrier. A client is one program.
_KEPT: dict[str, set[str]] = {}
_API: Any = None
# Transfers and tensors of the graph that PassStats.largest tells of.
_largest_size = 0


def pass_stats() -> PassStats:
    """What the pass has done in this process: how many transfers it ordered, what it left alone and why, its errors.

    The pass runs in the process of a session's master (the task that the session's target names), of a function in each
    worker that runs it. It is a copy: later graphs do not change it.
    """
    with _LOCK:
        return dataclasses.replace(_STATS)


def parameters_of(config: Any) -> dict[str, Any]:
    """The parameter map of a RewriterConfig.CustomGraphOptimizer as plain values."""
    values: dict[str, Any] = {}
    for key, attr in config.parameter_map.items():
        kind = attr.WhichOneof("value")
        if kind == "s":
            values[key] = attr.s.decode()
        elif kind in ("i", "b", "f"):
            values[key] = getattr(attr, kind)
        else:
            values[key] = attr  # of no use: Options says so by name
    return values


def _run(data: int, size: int, sink: int) -> int:
    """Called from C. Must never raise: an exception here would be printed and forgotten."""
    global _largest_size
    strict = False
    try:
        request = meta_graph_pb2.MetaGraphDef.FromString(ctypes.string_at(data, size))
        config = rewriter_config_pb2.RewriterConfig.CustomGraphOptimizer.FromString(
            request.collection_def["parameters"].bytes_list.value[0]
        )
        parameters = parameters_of(config)
        strict = parameters.get("strict") is True
        key = crossed_functions.key_of(parameters)
        # A function's graph is called by the function's name.
        name = " ".join(request.collection_def["id"].node_list.value) if is_function(request.graph_def) else ""
        client = str(parameters.pop("client", ""))
        trace_key = str(parameters.pop(graph_records.PARAMETER, ""))
        fetches = list(request.collection_def["fetch"].node_list.value)
        keep = list(request.collection_def["keep"].node_list.value)
        feeds = list(request.collection_def["feed"].node_list.value)
        capable = {task_of(device) for device in request.collection_def["capable"].node_list.value}
        local = {task_of(device) for device in request.collection_def["local"].node_list.value}
        # The same for all graphs of this process, for the state behind the barrier is the process's.
        home = min(local & capable, default="")
        if not home and parameters.get("barrier") is False and not is_function(request.graph_def):
            say_once(
                "a session has barrier=False, but its master runs in a process without a tfsched.Server, so its steps keep "
                "the barrier; give the session the target of a tfsched.Server."
            )
        try:
            options = Options.from_parameters(parameters)
            graph, report = rewrite(
                request.graph_def, options, fetches, keep, feeds, capable, client, home, local, _API.tfsched_link_bps
            )
        except Exception as error:  # whatever it is, the step must run as if we were not there
            _note_error(error, strict)
            request = meta_graph_pb2.MetaGraphDef.FromString(ctypes.string_at(data, size))
            if strict:
                _put(sink, fail_with(request.graph_def, fetches, f"tfsched: {_sentence(error)}"))
                return _CHANGED
            # It orders nothing, but it sees whole steps.
            options = Options.from_parameters({"ordering": "none"})
            graph, report = rewrite(request.graph_def, options, fetches, keep, feeds, capable, client, home, local)
        if name:
            crossed_functions.note(name, key, has_crossed(request.graph_def if graph is None else graph))
        with _LOCK:
            _STATS.graphs += 1
            _STATS.options = report.options or options.settled()
            if graph is not None:
                _STATS.rewritten += 1
                _STATS.ordered += report.ordered
                _STATS.exchanged += report.exchanged.tensors
            if report.crossing:
                _STATS.crossing = len(report.crossing)
                _API.tfsched_set_crossing_variables(_STATS.crossing)
            if report.crossing or report.kept:
                _STATS.kept = dict(report.kept)
                _say_what_stays(client, report.kept)
            if report.ordered or report.unordered or report.crossing or report.exchanged.packs:
                _STATS.last_report = explain(report)
                size = report.ordered + report.exchanged.tensors
                if size >= _largest_size:
                    _largest_size, _STATS.largest = size, _STATS.last_report
                log.debug("%s", _STATS.last_report)
        if trace_key:
            graph_records.record(_API, trace_key, request, graph)
        if graph is None:
            return _UNCHANGED
        _put(sink, graph)
        return _CHANGED
    except BaseException as error:
        _note_error(error, strict)
        return _UNCHANGED


def _say_what_stays(client: str, kept: dict[str, str]) -> None:
    """Says in one line, once of each variable of a program, whose updates stay in the step. Called with the lock held."""
    said = _KEPT.setdefault(client, set())
    new = {name: reason for name, reason in kept.items() if name not in said}
    if not new:
        return
    said.update(new)
    log.warning(
        "barrier=False was asked for, and %d variable%s updated within the step all the same: %s.",
        len(new),
        " is" if len(new) == 1 else "s are",
        by_reason(new),
    )


def _put(sink: int, graph: graph_pb2.GraphDef) -> None:
    text = graph.SerializeToString()
    _API.tfsched_put(sink, text, len(text))


def _sentence(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


def _note_error(error: BaseException, strict: bool) -> None:
    text = _sentence(error)
    with _LOCK:
        _STATS.errors += 1
        _STATS.last_error = text
        warn = not strict and text not in _WARNED
        if warn:  # a strict session says it by failing, and must not silence a later one that does not
            _WARNED.add(text)
    if warn:
        log.warning("tfsched steps aside, transfers run unordered: %s", text)
        if not isinstance(error, ValueError):
            log.debug("where it happened", exc_info=error)


_PASS = library.PASS(_run)  # lives as long as the process: C keeps its address


def install() -> None:
    """Loads the native library and makes Grappler's optimizer "tfsched" call the pass in this process.

    Done by everything in the public API that needs it; call it yourself before using the protocol or the optimizer by name.

    Raises:
      TfschedError: the native library is missing, or was built for another TensorFlow.
    """
    global _API
    api = library.c_api()
    with _LOCK:
        if _API is not None:
            return
        _API = api
    api.tfsched_set_pass(_PASS)
    # Grappler may still run on a server's thread while the interpreter is being torn down.
    atexit.register(api.tfsched_set_pass, None)
