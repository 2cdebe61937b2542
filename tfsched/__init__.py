"""tfsched: orders the transfers of distributed TensorFlow. This file lists the whole public API.

Importing the package costs nothing: TensorFlow and the native library are loaded when a name that needs them is first
used (all but ``ordering``), or by :func:`load`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tfsched.errors import TfschedError
from tfsched.version import __version__

if TYPE_CHECKING:
    from tfsched import ordering as ordering
    from tfsched import parallel as parallel
    from tfsched import placement as placement
    from tfsched._options import Options as Options
    from tfsched.control.scalars import ScalarsCallback as ScalarsCallback
    from tfsched.control.scalars import ScalarsHook as ScalarsHook
    from tfsched.control.serving import serve_control as serve_control
    from tfsched.draining import DrainHook as DrainHook
    from tfsched.draining import drain as drain
    from tfsched.eager.api import disable as disable
    from tfsched.eager.api import enable as enable
    from tfsched.eager.api import function as function
    from tfsched.eager.api import options as options
    from tfsched.eager.resolver import cluster_resolver as cluster_resolver
    from tfsched.grappler.bridge import PassStats as PassStats
    from tfsched.grappler.bridge import install as load
    from tfsched.grappler.bridge import pass_stats as pass_stats
    from tfsched.grappler.config import session_config as session_config
    from tfsched.online.autotuner import autotune as autotune
    from tfsched.online.hooks import AutotuneCallback as AutotuneCallback
    from tfsched.online.hooks import AutotuneHook as AutotuneHook
    from tfsched.ops.configure import configure as configure
    from tfsched.ops.control import stats as stats
    from tfsched.ops.control import transfers as transfers
    from tfsched.server import PROTOCOL as PROTOCOL
    from tfsched.server import Server as Server
    from tfsched.tracing import StepTrace as StepTrace
    from tfsched.tracing import trace_function as trace_function
    from tfsched.tracing import trace_steps as trace_steps

# name -> module that defines it. A module named here is a promise to users.
_API = {
    "PROTOCOL": "tfsched.server",
    "Server": "tfsched.server",
    "Options": "tfsched._options",
    "session_config": "tfsched.grappler.config",
    "enable": "tfsched.eager.api",
    "disable": "tfsched.eager.api",
    "options": "tfsched.eager.api",
    "function": "tfsched.eager.api",
    "cluster_resolver": "tfsched.eager.resolver",
    "trace_steps": "tfsched.tracing",
    "trace_function": "tfsched.tracing",
    "StepTrace": "tfsched.tracing",
    "autotune": "tfsched.online.autotuner",
    "AutotuneCallback": "tfsched.online.hooks",
    "AutotuneHook": "tfsched.online.hooks",
    "configure": "tfsched.ops.configure",
    "stats": "tfsched.ops.control",
    "transfers": "tfsched.ops.control",
    "serve_control": "tfsched.control.serving",
    "ScalarsCallback": "tfsched.control.scalars",
    "ScalarsHook": "tfsched.control.scalars",
    "drain": "tfsched.draining",
    "DrainHook": "tfsched.draining",
    "load": "tfsched.grappler.bridge",
    "pass_stats": "tfsched.grappler.bridge",
    "PassStats": "tfsched.grappler.bridge",
}

# A list that tools can read; a test holds it equal to _API.
__all__ = [
    "PROTOCOL",
    "AutotuneCallback",
    "AutotuneHook",
    "DrainHook",
    "Options",
    "PassStats",
    "ScalarsCallback",
    "ScalarsHook",
    "Server",
    "StepTrace",
    "TfschedError",
    "__version__",
    "autotune",
    "cluster_resolver",
    "configure",
    "disable",
    "drain",
    "enable",
    "function",
    "load",
    "options",
    "ordering",
    "parallel",
    "pass_stats",
    "placement",
    "serve_control",
    "session_config",
    "stats",
    "trace_function",
    "trace_steps",
    "transfers",
]


def __getattr__(name: str) -> Any:
    if name in ("ordering", "parallel", "placement"):
        return importlib.import_module(f"tfsched.{name}")
    if name in _API:
        value = getattr(importlib.import_module(_API[name]), "install" if name == "load" else name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'tfsched' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
