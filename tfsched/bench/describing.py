"""Words and numbers that the bench's tables and pictures share."""

from __future__ import annotations

import math
from typing import Any

from tfsched.bench.links import REAL, format_bandwidth
from tfsched.bench.steady import LEAD, is_steady


def number(value: float | None, form: str = "{:.3f}") -> str:
    """A table's cell; a dash where there is no number."""
    return "-" if value is None or math.isnan(value) else form.format(value)


def describe_hosts(result: dict[str, Any]) -> str:
    """What the cluster of a result is made of."""
    return f"{result['ps']} PS + {result['workers']} worker(s)" if result["ps"] else f"{result['workers']} workers"


def describe_link(result: dict[str, Any]) -> str:
    """The links' rate and what they are."""
    if result["link"] == REAL and result["bandwidth_bps"] is None:
        return "links of unknown rate"
    kind = "links of the hosts" if result["link"] == REAL else f"link {result['link']}"
    return f"{format_bandwidth(result['bandwidth_bps'])}, {kind}"


def describe_blocks(block: int) -> str:
    """What the caption says of a step's time; begins with a semicolon, or is empty."""
    if is_steady(block):
        return (
            f"; times are of the steady state in blocks of {block} steps, from the end of step {LEAD} on; "
            "with ends: of whole blocks by their steps, last update included"
        )
    return f"; times are means over blocks of {block} steps, last update included" if block > 1 else ""
