"""The Python end of the bridge: Grappler calls it with a graph, in whichever process owns the graph."""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import threading
from typing import Any

from absl import logging
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import meta_graph_pb2, rewriter_config_pb2

from tfsched._options import Options
from tfsched.grappler import crossed_functions, graph_records
from tfsched.grappler.barrier.crossing import has_crossed
from tfsched.grappler.reading.clients import is_function
from tfsched.grappler.reading.graph import task_of
from tfsched.grappler.rewrite import explain, rewrite
from tfsched.grappler.strict import fail_with
from tfsched.ops import library

_UNCHANGED, _CHANGED = 0, 1


@dataclasses.dataclass
class PassStats:
    """What the pass did in this process: graphs seen, graphs rewritten, transfers ordered, errors; the last error's text.
    ``exchanged``: tensors that all-reduces were divided into. ``options``: the last graph's.

    Of the last training graph with ``barrier=False``: how many variables are ``crossing`` the barrier, and for those
    ``kept`` in the step, why.
    """

    graphs: int = 0
    rewritten: int = 0
    ordered: int = 0
    errors: int = 0
    last_error: str = ""
    last_report: str = ""
    crossing: int = 0
    kept: dict[str, str] = dataclasses.field(default_factory=dict)
    exchanged: int = 0
    options: Options | None = None


_STATS = PassStats()
_LOCK = threading.Lock()
_WARNED: set[str] = set()
# Client -> names of the variables of which it has been said that they keep the barrier. A client is one program.
_KEPT: dict[str, set[str]] = {}
_NAMES_SHOWN = 5
_API: Any = None


def pass_stats() -> PassStats:
    """A copy of this process's numbers."""
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
            _warn(
                "a session has barrier=False, but its master runs in a process without a tfsched.Server, so its steps keep "
                "the barrier; give the session the target of a tfsched.Server"
            )
        try:
            options = Options.from_parameters(parameters)
            graph, report = rewrite(request.graph_def, options, fetches, keep, feeds, capable, client, home, local)
        except Exception as error:  # whatever it is, the step must run as if we were not there
            _note_error(error, strict)
            request = meta_graph_pb2.MetaGraphDef.FromString(ctypes.string_at(data, size))
            if strict:
                _put(sink, fail_with(request.graph_def, fetches, f"tfsched: {_sentence(error)}"))
                return _CHANGED
            # It orders nothing, but it sees whole steps.
            options = Options(ordering="none")
            graph, report = rewrite(request.graph_def, options, fetches, keep, feeds, capable, client, home, local)
        if name:
            crossed_functions.note(name, key, has_crossed(request.graph_def if graph is None else graph))
        with _LOCK:
            _STATS.graphs += 1
            _STATS.options = options
            if graph is not None:
                _STATS.rewritten += 1
                _STATS.ordered += report.ordered
                _STATS.exchanged += report.exchanged.tensors
            if report.crossing:
                _STATS.crossing = len(report.crossing)
            if report.crossing or report.kept:
                _STATS.kept = dict(report.kept)
                _say_what_stays(client, report.kept)
            if report.ordered or report.unordered or report.crossing or report.exchanged.packs:
                _STATS.last_report = explain(report)
                logging.vlog(1, "tfsched: %s", _STATS.last_report)
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
    groups = []
    for reason in sorted(set(new.values())):
        names = sorted(name for name, why in new.items() if why == reason)
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        groups.append(f"{', '.join(names[:_NAMES_SHOWN])}{more} ({reason})")
    logging.warning(
        "tfsched: barrier=False was asked for, and %d variable%s updated within the step all the same: %s.",
        len(new),
        " is" if len(new) == 1 else "s are",
        "; ".join(groups),
    )


def _put(sink: int, graph: graph_pb2.GraphDef) -> None:
    text = graph.SerializeToString()
    _API.tfsched_put(sink, text, len(text))


def _sentence(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


def _warn(sentence: str) -> None:
    """Says it once in this process."""
    with _LOCK:
        if sentence in _WARNED:
            return
        _WARNED.add(sentence)
    logging.warning("tfsched: %s.", sentence)


def _note_error(error: BaseException, strict: bool) -> None:
    text = _sentence(error)
    with _LOCK:
        _STATS.errors += 1
        _STATS.last_error = text
        warn = not strict and text not in _WARNED
        if warn:  # a strict session says it by failing, and must not silence a later one that does not
            _WARNED.add(text)
    if warn:
        logging.warning("tfsched steps aside, transfers run unordered: %s", text)
        if not isinstance(error, ValueError):
            logging.info("tfsched: where it happened", exc_info=error)


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
