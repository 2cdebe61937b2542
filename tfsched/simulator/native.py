"""Loads libtfsched_sim.so and calls it: arrays in, arrays out. The layouts are those of cc/simulator/capi.h."""

from __future__ import annotations

import ctypes
import functools
import pathlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .errors import SimulatorError

LIBRARY = pathlib.Path(__file__).with_name("libtfsched_sim.so")

_TYPES: dict[str, tuple[Any, Any]] = {
    "i32": (np.int32, ctypes.c_int32),
    "i64": (np.int64, ctypes.c_int64),
    "u8": (np.uint8, ctypes.c_uint8),
    "f64": (np.float64, ctypes.c_double),
}
_COUNTS = [
    "workers",
    "servers",
    "hosts",
    "ops",
    "tensors",
    "pieces",
    "streams",
    "steps",
    "measured_from",
    "recorded_from",
    "orders",
    "origin_op",
    "way",
    "priority",
]
_FLAGS = ["barrier", "synchronous", "update_pieces", "shuffle"]
_SIZES = ["credit_bytes", "grace_us", "rate_bps", "exchange_piece_bytes", "whole_bytes", "exchange_pace_bps", "window_bytes"]
_TIMES = [
    "startup_us",
    "release_us",
    "step_overhead_us",
    "update_us_per_byte",
    "processing_us_per_byte",
    "contention",
    "start_us",
    "window_begin_us",
    "window_end_us",
]
_ARRAYS_1 = {"host_bps": "f64", "worker_host": "i32", "server_host": "i32", "compute_scale": "f64", "op_us": "f64"}
_TABLES = ["op_inputs", "op_reads", "pull_inputs", "push_inputs", "piece_tensors", "request_orders"]
_ARRAYS_2 = {
    "tensor_bytes": "i64",
    "piece_bytes": "i64",
    "piece_server": "i32",
    "piece_group": "i32",
    "piece_pulled": "u8",
    "pull_rank": "i32",
    "push_rank": "i32",
    "piece_hold_us": "f64",
}


class _Table(ctypes.Structure):
    _fields_ = (("offsets", ctypes.POINTER(ctypes.c_int32)), ("values", ctypes.POINTER(ctypes.c_int32)))


def _pointers(arrays: Mapping[str, str]) -> list[tuple[str, Any]]:
    return [(name, ctypes.POINTER(_TYPES[kind][1])) for name, kind in arrays.items()]


class _Model(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in _COUNTS + _FLAGS),
        ("seed", ctypes.c_uint64),
        *((name, ctypes.c_int64) for name in _SIZES),
        *((name, ctypes.c_double) for name in _TIMES),
        ("pull_policy", ctypes.c_char_p),
        ("push_policy", ctypes.c_char_p),
        *_pointers(_ARRAYS_1),
        *((name, _Table) for name in _TABLES),
        *_pointers(_ARRAYS_2),
    )


class _Result(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ["events", "path", "pulled_bytes", "pushed_bytes", "messages"]),
        *((name, ctypes.c_double) for name in ["ring_busy_us", "window_begin_us", "window_end_us", "end_us"]),
        *_pointers(
            dict.fromkeys(
                ["begin_us", "finish_us", "tensor_wait_us", "compute_busy_us", "sent_bytes", "received_bytes"], "f64"
            )
        ),
        ("event_numbers", ctypes.POINTER(ctypes.c_int32)),
        ("event_times_us", ctypes.POINTER(ctypes.c_double)),
        ("path_events", ctypes.POINTER(ctypes.c_int32)),
        ("owner", ctypes.c_void_p),
    )


class Output(NamedTuple):
    """What the engine found; see Result in cc/simulator/model.h."""

    begin_us: np.ndarray  # [steps + 1, workers]
    finish_us: np.ndarray  # [steps, workers]
    tensor_wait_us: np.ndarray
    compute_busy_us: np.ndarray
    sent_bytes: np.ndarray
    received_bytes: np.ndarray
    event_numbers: np.ndarray  # [events, 6]: kind, what, worker, step, ready event, busy event
    event_times_us: np.ndarray  # [events, 3]: ready, start, end
    path: np.ndarray
    ring_busy_us: float
    window_us: tuple[float, float]
    end_us: float
    pulled_bytes: int
    pushed_bytes: int
    messages: int


@functools.cache
def library() -> Any:
    """The loaded library. Raises SimulatorError if it was not built."""
    try:
        loaded = ctypes.CDLL(str(LIBRARY))
        run_jobs = loaded.tfsched_sim_run_jobs
    except (OSError, AttributeError):  # not there, or one that is older
        raise SimulatorError(
            f"the simulator's library {LIBRARY} cannot be loaded; build it with 'python setup.py build_simulator'"
        ) from None
    run_jobs.argtypes = (ctypes.POINTER(_Model), ctypes.c_int32, ctypes.POINTER(_Result))
    run_jobs.restype = ctypes.c_char_p
    loaded.tfsched_sim_free.argtypes = (ctypes.POINTER(_Result),)
    loaded.tfsched_sim_free.restype = None
    loaded.tfsched_sim_policies.restype = ctypes.c_char_p
    return loaded


@functools.cache
def policies() -> tuple[str, ...]:
    """The names of cc/core's policies."""
    return tuple(library().tfsched_sim_policies().decode().split())


def run(model: Mapping[str, Any]) -> Output:
    """Simulate `model`, whose keys are the fields of Model in cc/simulator/model.h; tables are lists of lists.

    Raises SimulatorError if the engine refuses it.
    """
    return run_jobs([model])[0]


def run_jobs(models: Sequence[Mapping[str, Any]]) -> list[Output]:
    """Simulate jobs at the same time, on the same hosts, with one output each. Raises SimulatorError as `run`."""
    keep: list[Any] = []  # what C++ reads while it runs
    jobs = (_Model * len(models))(*(_native(model, keep) for model in models))
    found = (_Result * len(models))()
    error = _call(jobs, found)
    if error is not None:
        raise SimulatorError(f"the simulation failed: {error.decode()}")
    try:
        return [_output(one, model) for one, model in zip(found, models, strict=True)]
    finally:
        for one in found:
            library().tfsched_sim_free(ctypes.byref(one))


def _native(model: Mapping[str, Any], keep: list[Any]) -> _Model:
    """The model as C++ has it; what it points to goes to `keep`."""
    native = _Model(size=ctypes.sizeof(_Model))

    def pointer(values: Any, kind: str) -> Any:
        dtype, ctype = _TYPES[kind]
        array = np.ascontiguousarray(values, dtype=dtype).ravel()
        keep.append(array)
        return array.ctypes.data_as(ctypes.POINTER(ctype))

    for name in (*_COUNTS, *_FLAGS, *_SIZES, *_TIMES, "seed"):
        setattr(native, name, model[name])
    names = [model[name].encode() for name in ("pull_policy", "push_policy")]
    keep += names
    native.pull_policy, native.push_policy = names
    for name, kind in (*_ARRAYS_1.items(), *_ARRAYS_2.items()):
        setattr(native, name, pointer(model[name], kind))
    for name in _TABLES:
        offsets, values = _flat(model[name])
        setattr(native, name, _Table(pointer(offsets, "i32"), pointer(values, "i32")))
    return native


def _call(jobs: Any, found: Any) -> bytes | None:
    """Calls the engine in a thread of its own, for the main one has to hear Ctrl-C while it runs."""
    answers: list[bytes | None] = []
    run_engine = library().tfsched_sim_run_jobs
    thread = threading.Thread(target=lambda: answers.append(run_engine(jobs, len(jobs), found)), daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    return answers[0]


def _flat(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    values = np.fromiter((value for row in rows for value in row), dtype=np.int32, count=int(offsets[-1]))
    return offsets, values


def _output(found: _Result, model: Mapping[str, Any]) -> Output:
    steps, workers = model["steps"], model["workers"]

    def copy(name: str, *shape: int) -> np.ndarray:
        if 0 in shape:
            return np.zeros(shape)
        return np.ctypeslib.as_array(getattr(found, name), shape).copy()

    return Output(
        begin_us=copy("begin_us", steps + 1, workers),
        finish_us=copy("finish_us", steps, workers),
        tensor_wait_us=copy("tensor_wait_us", model["tensors"]),
        compute_busy_us=copy("compute_busy_us", workers),
        sent_bytes=copy("sent_bytes", model["hosts"]),
        received_bytes=copy("received_bytes", model["hosts"]),
        event_numbers=copy("event_numbers", found.events, 6),
        event_times_us=copy("event_times_us", found.events, 3),
        path=copy("path_events", found.path).astype(np.int64),
        ring_busy_us=found.ring_busy_us,
        window_us=(found.window_begin_us, found.window_end_us),
        end_us=found.end_us,
        pulled_bytes=found.pulled_bytes,
        pushed_bytes=found.pushed_bytes,
        messages=found.messages,
    )
