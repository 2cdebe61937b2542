"""The bounds of steps that all-reduce their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfsched.bench.runner import ALL_REDUCE, BESIDE, COMPUTE, EXCHANGE, JOIN, PIECES, TCP


def least_bytes(gradient_bytes: int, workers: int) -> int:
    """What leaves each worker in any all-reduce: all but what it owns, and the sum of that to all others."""
    return 2 * (workers - 1) * gradient_bytes // workers


def least_s(gradient_bytes: int, workers: int, bandwidth_bps: float | None) -> float | None:
    """Seconds for which any all-reduce needs each worker's link, per direction; None where nothing limits the links.

    Packets' headers are left out.
    """
    return None if bandwidth_bps is None else least_bytes(gradient_bytes, workers) * 8 / bandwidth_bps


def bounds_of(bounds_s: dict[str, list[float]], facts: dict[str, Any]) -> dict[str, Any]:
    """The bounds (s) from the parts that ran alone.

    lower = the busier one of computing and the link. `communication_s` is the link's closed form, and where nothing limits
    it what an all-reduce alone took; `tcp_s` what TCP needs for the same bytes, None where it was not measured. `beside_s`
    is computing while tfsched all-reduces what has nothing to do with it, and `join_s` is joining all gradients and
    splitting them again; `exchange_s` is what tfsched's all-reduce alone took, and `pieces_s` the same in the pieces of p3,
    one after the other. All are None where they were not measured. upper = computing, and then stock TensorFlow's all-reduce
    as measured alone.
    """
    compute_s = float(np.median(bounds_s[COMPUTE]))
    all_reduce_s = float(np.median(bounds_s[ALL_REDUCE]))
    closed_form_s = least_s(facts["gradient_bytes"], facts["workers"], facts["bandwidth_bps"])
    communication_s = all_reduce_s if closed_form_s is None else closed_form_s
    return {
        "compute_s": compute_s,
        "communication_s": communication_s,
        "closed_form_s": closed_form_s,
        "tcp_s": float(np.median(bounds_s[TCP])) if TCP in bounds_s else None,
        "all_reduce_s": all_reduce_s,
        "beside_s": float(np.median(bounds_s[BESIDE])) if BESIDE in bounds_s else None,
        "join_s": float(np.median(bounds_s[JOIN])) if JOIN in bounds_s else None,
        "exchange_s": float(np.median(bounds_s[EXCHANGE])) if EXCHANGE in bounds_s else None,
        "pieces_s": float(np.median(bounds_s[PIECES])) if PIECES in bounds_s else None,
        "lower_s": max(compute_s, communication_s),
        "upper_s": compute_s + max(communication_s, all_reduce_s),
        "compute_p95_over_p50": float(np.percentile(bounds_s[COMPUTE], 95)) / compute_s,
    }
