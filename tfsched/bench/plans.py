"""Makes the plan of a setting whose ordering needs op times."""

from __future__ import annotations

import json
from typing import Any


def make_plan(trace: Any, algorithm: str) -> str:
    """The plan that `algorithm` makes of a step trace, as text: every task can read it, also on another machine."""
    from tfsched.tracing import plan_from_trace

    return json.dumps(plan_from_trace(trace, algorithm).to_json(), allow_nan=False)
