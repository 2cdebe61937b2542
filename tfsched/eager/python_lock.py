"""Lets other threads run Python while a tensor's device is asked for, which may have to wait for the pass.

``EagerTensor.device`` and ``backing_device`` wait until a function that runs elsewhere has said where its output is, and of
all that a program asks a tensor for they alone hold Python's lock meanwhile. The pass is written in Python. Where the
function's task is served by this same process, the pass would wait for the lock and the lock's holder for the pass, for
ever. So the same wait is made before, without the lock.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.python.eager import context as context_lib
from tensorflow.python.framework import ops

# Where TensorFlow keeps the C++ of its Python package, from 2.17 on and before.
_LIBRARIES = ("lib_pywrap_tensorflow_common.so", "_pywrap_tensorflow_internal.so")
_HANDLE_OF = "_Z18EagerTensor_HandlePK7_object"  # TFE_TensorHandle* EagerTensor_Handle(const PyObject*)


@functools.lru_cache(maxsize=1)
def release_the_lock() -> None:
    """Exchanges the two getters in this process."""
    wait = _waiter()
    if wait is None:
        logging.info("tfsched: this TensorFlow does not tell tensors' handles; their devices are asked for as before.")
        return
    for name in ("device", "backing_device"):
        setattr(ops.EagerTensor, name, _patient(ops.EagerTensor.__dict__[name], wait))


def _patient(stock: Any, wait: Callable[[Any], None]) -> property:
    def get(tensor: Any) -> Any:
        if context_lib.get_server_def() is not None:  # nobody else runs functions for a process by itself
            wait(tensor)
        return stock.__get__(tensor)

    return property(get, doc=stock.__doc__)


def _waiter() -> Callable[[Any], None] | None:
    """What waits for a tensor's device with the lock released; None if TensorFlow's symbols are not there."""
    directory = os.path.join(os.path.dirname(tf.__file__), "python")
    paths = [path for name in _LIBRARIES if os.path.exists(path := os.path.join(directory, name))]
    handle_of: Any = next((found for path in paths if (found := getattr(ctypes.PyDLL(path), _HANDLE_OF, None))), None)
    # A call through CDLL releases the lock; one through PyDLL, of what does not wait, keeps it.
    engine = ctypes.CDLL(os.path.join(tf.sysconfig.get_lib(), "libtensorflow_cc.so.2"))
    if handle_of is None:
        return None
    handle_of.restype, handle_of.argtypes = ctypes.c_void_p, [ctypes.py_object]
    device_of, new_status, delete_status = (
        engine.TFE_TensorHandleBackingDeviceName,
        engine.TF_NewStatus,
        engine.TF_DeleteStatus,
    )
    device_of.restype, device_of.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p]
    new_status.restype, new_status.argtypes = ctypes.c_void_p, []
    delete_status.restype, delete_status.argtypes = None, [ctypes.c_void_p]

    def wait(tensor: Any) -> None:
        status = new_status()  # an error is told by the stock getter
        try:
            device_of(handle_of(tensor), status)
        finally:
            delete_status(status)

    return wait
