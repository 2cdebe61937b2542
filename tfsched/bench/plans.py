"""Makes the plan of a setting whose ordering needs op times."""

from __future__ import annotations

import os
import tempfile
from typing import Any


def save_plan(trace: Any, algorithm: str) -> str:
    """The path of a new file with the plan that `algorithm` makes of a step trace; whoever asked removes it."""
    from tfsched.tracing import plan_from_trace

    plan = plan_from_trace(trace, algorithm)
    handle, path = tempfile.mkstemp(prefix="tfs-plan-", suffix=".json")
    os.close(handle)
    plan.save(path)
    return path
