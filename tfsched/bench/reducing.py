"""The bounds of steps that all-reduce their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfsched.bench.runner import ALL_REDUCE, COMPUTE


def least_s(gradient_bytes: int, workers: int, bandwidth_bps: float | None) -> float | None:
    """Seconds for which any all-reduce needs each worker's link, per direction; None where nothing limits the links.

    All workers but a byte's owner send what they have, and get the sum: 2 (W - 1) / W of the bytes leave each worker.
    Packets' headers are left out.
    """
    return None if bandwidth_bps is None else 2 * (workers - 1) / workers * gradient_bytes * 8 / bandwidth_bps


def bounds_of(bounds_s: dict[str, list[float]], facts: dict[str, Any]) -> dict[str, Any]:
    """The bounds (s) from the parts that ran alone.

    lower = the busier one of computing and the link. `communication_s` is the link's closed form, and where nothing limits
    it what an all-reduce alone took. upper = computing, and then stock TensorFlow's all-reduce as measured alone.
    """
    compute_s = float(np.median(bounds_s[COMPUTE]))
    all_reduce_s = float(np.median(bounds_s[ALL_REDUCE]))
    closed_form_s = least_s(facts["gradient_bytes"], facts["workers"], facts["bandwidth_bps"])
    communication_s = all_reduce_s if closed_form_s is None else closed_form_s
    return {
        "compute_s": compute_s,
        "communication_s": communication_s,
        "closed_form_s": closed_form_s,
        "all_reduce_s": all_reduce_s,
        "lower_s": max(compute_s, communication_s),
        "upper_s": compute_s + max(communication_s, all_reduce_s),
        "compute_p95_over_p50": float(np.percentile(bounds_s[COMPUTE], 95)) / compute_s,
    }
