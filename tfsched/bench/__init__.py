"""Measures named settings on a real cluster of processes behind limited links.

May hold: models, testbeds, the cluster's processes, measurement, reports. May import: the public
`tfsched` API and `tfsched.ordering` / `tracing` / `simulator`, always lazily, so that stock settings run
where the native library is missing.
"""

from tfsched.bench.command import BenchConfig, run
from tfsched.bench.errors import BenchError
from tfsched.bench.models import MODELS
from tfsched.bench.settings import SETTINGS, Setting, register_setting

__all__ = [
    "MODELS",
    "SETTINGS",
    "BenchConfig",
    "BenchError",
    "Setting",
    "register_setting",
    "run",
]
