"""Lets other threads run Python while TensorFlow waits for what may need the pass.

``EagerTensor.device`` and ``backing_device`` wait until a function that runs elsewhere has said where its output is, and
``shape`` until it has said which shape it has. To set the random seed empties the context's caches, which waits until no
thread's function runs. All hold Python's lock meanwhile. The pass is written in Python. Where the function's task is served
by this same process, the pass would wait for the lock and the lock's holder for the pass, for ever. So the same wait is made
without the lock.

Emptying takes more than that. It holds the caches' own lock while it waits for the process's default executor, and others
ask for that one with Python's in hand, to add or remove a function. So no call that needs the pass may be under way then:
new ones are held off, and what is under way is waited for before.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context as context_lib
from tensorflow.python.framework import ops

from tfsched._log import log

# Where TensorFlow keeps the C++ of its Python package, from 2.17 on and before.
_LIBRARIES = ("lib_pywrap_tensorflow_common.so", "_pywrap_tensorflow_internal.so")
_HANDLE_OF = "_Z18EagerTensor_HandlePK7_object"  # TFE_TensorHandle* EagerTensor_Handle(const PyObject*)


# At most: nothing here may be a hang, should a call that is held off be what another one waits for.
_HOLD_OFF_S = 10.0
_START_S = 1.0

_starting: set[int] = set()  # threads that are about to start a call that needs the pass
_emptied: threading.Event | None = None  # while the caches are emptied, what says when they are


def start() -> None:
    """A call that needs the pass is about to start on this thread; waits while the caches are emptied."""
    me = threading.get_ident()
    _starting.add(me)
    emptied = _emptied
    if emptied is not None:
        _starting.discard(me)
        emptied.wait(_HOLD_OFF_S)
        _starting.add(me)


def started() -> None:
    """It has started, or ended: TensorFlow's executor knows of it."""
    _starting.discard(threading.get_ident())


@functools.lru_cache(maxsize=1)
def release_the_lock() -> None:
    """Exchanges what asks a tensor for its device or shape, and what empties the caches, in this process."""
    # A call through CDLL releases the lock; one through PyDLL, of what does not wait, keeps it.
    engine = ctypes.CDLL(os.path.join(tf.sysconfig.get_lib(), "libtensorflow_cc.so.2"))
    pywrap_tfe.TFE_ContextClearCaches = _patient_emptying(pywrap_tfe.TFE_ContextClearCaches, engine)
    handle_of = _handle_getter()
    if handle_of is None:
        log.info("this TensorFlow does not tell tensors' handles; their devices are asked for as before.")
        return
    ready = _waiter(engine, engine.TFE_TensorHandleBackingDeviceName, handle_of)
    for name in ("device", "backing_device"):
        stock = ops.EagerTensor.__dict__[name]
        setattr(ops.EagerTensor, name, property(_patient(stock.__get__, ready), doc=stock.__doc__))
    ready = _waiter(engine, engine.TFE_TensorHandleNumDims, handle_of)
    for name in ("_shape_tuple", "_rank", "_num_elements"):
        setattr(ops.EagerTensor, name, _patient(getattr(ops.EagerTensor, name), ready))


def _patient(stock: Any, wait: Callable[[Any], None]) -> Callable[[Any], Any]:
    """``stock``, which asks a tensor for something, behind ``wait``, which waits until the answer is there."""

    def ask(tensor: Any) -> Any:
        if context_lib.get_server_def() is not None:  # nobody else runs functions for a process by itself
            wait(tensor)
        return stock(tensor)

    return ask


def _patient_emptying(stock: Callable[[Any], None], engine: ctypes.CDLL) -> Callable[[Any], None]:
    empty, pointer_in = engine.TFE_ContextClearCaches, ctypes.pythonapi.PyCapsule_GetPointer
    empty.restype, empty.argtypes = None, [ctypes.c_void_p]
    pointer_in.restype, pointer_in.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

    alone = threading.Lock()

    @functools.wraps(stock)
    def clear_caches(handle: Any) -> None:
        global _emptied
        if context_lib.get_server_def() is None:  # nobody else runs functions for a process by itself
            stock(handle)
            return
        with alone:
            _emptied = threading.Event()
            try:
                deadline_s = time.monotonic() + _START_S
                while _starting - {threading.get_ident()} and time.monotonic() < deadline_s:
                    time.sleep(0.001)
                with contextlib.suppress(tf.errors.OpError):  # told to who asks for the outputs
                    context_lib.context().executor.wait()
                empty(pointer_in(handle, None))
            finally:
                _emptied.set()
                _emptied = None

    return clear_caches


def _handle_getter() -> Any:
    """What gives the handle of a tensor; None if TensorFlow's symbol is not there."""
    directory = os.path.join(os.path.dirname(tf.__file__), "python")
    paths = [path for name in _LIBRARIES if os.path.exists(path := os.path.join(directory, name))]
    handle_of: Any = next((found for path in paths if (found := getattr(ctypes.PyDLL(path), _HANDLE_OF, None))), None)
    if handle_of is not None:
        handle_of.restype, handle_of.argtypes = ctypes.c_void_p, [ctypes.py_object]
    return handle_of


def _waiter(engine: ctypes.CDLL, question: Any, handle_of: Any) -> Callable[[Any], None]:
    """What asks a tensor a question of TensorFlow's C API, with Python's lock released, and leaves the answer to stock."""
    new_status, delete_status = engine.TF_NewStatus, engine.TF_DeleteStatus
    question.restype, question.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p]
    new_status.restype, new_status.argtypes = ctypes.c_void_p, []
    delete_status.restype, delete_status.argtypes = None, [ctypes.c_void_p]

    def wait(tensor: Any) -> None:
        status = new_status()  # an error is told by the stock getter
        try:
            question(handle_of(tensor), status)
        finally:
            delete_status(status)

    return wait
