"""The measures of TicTac: bounds, ordering efficiency, speedup, straggler effect, regression."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from . import _checks
from .dag import Dag


class MetricError(ValueError):
    """Numbers a metric is not defined for; the message is one sentence with the value."""


def upper_bound_us(dag: Dag, times_us: Mapping[str, float] | None = None) -> float:
    """Return the longest makespan in µs: all ops one after another (TicTac, equation 1)."""
    return math.fsum(dag.times_us(times_us))


def lower_bound_us(dag: Dag, times_us: Mapping[str, float] | None = None) -> float:
    """Return the largest sum of op times on one resource, in µs (TicTac, equation 2).

    It ignores the dependencies, so no order may reach it.
    """
    loads_us: dict[str, list[float]] = {}
    for op, time_us in zip(dag.ops, dag.times_us(times_us), strict=True):
        loads_us.setdefault(op.resource, []).append(time_us)
    return max(math.fsum(load) for load in loads_us.values())


def _check_bounds(upper: float, lower: float) -> None:
    _checks.number(upper, "the upper bound", MetricError)
    _checks.number(lower, "the lower bound", MetricError)
    if lower > upper:
        raise MetricError(f"the lower bound {lower:g} exceeds the upper bound {upper:g}; swap them")


def efficiency(upper: float, lower: float, t: float) -> float:
    """Return the ordering efficiency E = (upper - t) / (upper - lower) (TicTac, equation 3).

    1 is a perfect order, 0 the worst. All three in one unit, and from the same op times. A measured
    t outside the bounds gives a value outside 0..1, which is left as it is. When the bounds
    are equal (one resource does all the work) no order can be better than another: E is 1.
    Raises MetricError for values that are negative, not finite, or bounds the wrong way round.
    """
    _check_bounds(upper, lower)
    _checks.number(t, "the makespan", MetricError)
    if upper == lower:
        return 1.0
    return (upper - t) / (upper - lower)


def speedup(upper: float, lower: float) -> float:
    """Return S = (upper - lower) / lower, the most that ordering can gain (TicTac, equation 4).

    0 is nothing, 1 is twice the throughput. S describes the dag and its op times; it says nothing
    about one order and has no effect on E. Raises MetricError as `efficiency` does, and for lower
    = 0 unless upper is 0 too (S = 0).
    """
    _check_bounds(upper, lower)
    if upper == lower:
        return 0.0
    if lower == 0:
        raise MetricError(f"the lower bound is 0 and the upper {upper:g}; give op times above zero")
    return (upper - lower) / lower


def straggler_effects(worker_times_s: Iterable[Sequence[float]]) -> list[float]:
    """Return per step the longest wait of any worker / the iteration time (TicTac, section 6.3).

    `worker_times_s` holds per step the time in s from the step's start until each worker finished.
    The step ends with its slowest worker, so the longest wait is slowest - fastest.
    Raises MetricError for a step without workers, or a time that is not finite and above zero.
    """
    result = []
    for step, times_s in enumerate(worker_times_s):
        if len(times_s) == 0:
            raise MetricError(f"step {step} has no workers; give one finish time per worker")
        checked = [
            _checks.number(t, f"finish time {w} of step {step}", MetricError, positive=True) for w, t in enumerate(times_s)
        ]
        result.append((max(checked) - min(checked)) / max(checked))
    return result


def straggler_effect(worker_times_s: Iterable[Sequence[float]]) -> float:
    """Return the mean of `straggler_effects` over the steps: 0 means that nobody ever waits."""
    effects = straggler_effects(worker_times_s)
    if not effects:
        raise MetricError("there are no steps; give at least one")
    return math.fsum(effects) / len(effects)


def normalized_step_times(step_times_s: Sequence[float], best_s: float | None = None) -> list[float]:
    """Return best / each step time: 1 is the best step, 0.5 one that took twice as long.

    This is the x axis of the CDF in TicTac, figure 8. To compare several orderings give all of them
    the same `best_s`; the default is the fastest of these steps.
    Raises MetricError for no steps, or a time that is not finite and above zero.
    """
    times_s = [_checks.number(t, f"step time {i}", MetricError, positive=True) for i, t in enumerate(step_times_s)]
    if not times_s:
        raise MetricError("there are no step times; give at least one")
    if best_s is None:
        best_s = min(times_s)
    best_s = _checks.number(best_s, "the best step time", MetricError, positive=True)
    return [best_s / t for t in times_s]


def _vector(values: Sequence[float], what: str) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0 or not np.isfinite(array).all():
        raise MetricError(f"{what} is {_checks.show(values)}; give a list of finite numbers")
    return array


def r_squared(x: Sequence[float], y: Sequence[float]) -> float:
    """Return R² of the least squares line y = a x + b: 1 - residual / total sum of squares.

    A constant y is fitted exactly: 1. Raises MetricError for lists of different length, fewer than
    two points, or a constant x, through which no line goes.
    """
    xs, ys = _vector(x, "x"), _vector(y, "y")
    if len(xs) != len(ys) or len(xs) < 2:
        raise MetricError(f"x has {len(xs)} and y {len(ys)} points; give the same two or more")
    if (xs == xs[0]).all():
        raise MetricError(f"all {len(xs)} values of x are {xs[0]:g}; give at least two different")
    if (ys == ys[0]).all():
        return 1.0
    dx, dy = xs - xs.mean(), ys - ys.mean()
    # For a line with intercept, R² is the squared correlation.
    r = float(dx @ dy) / math.sqrt(float(dx @ dx)) / math.sqrt(float(dy @ dy))
    return r * r


def percentile(values: Sequence[float], q: float) -> float:
    """Return the q-th percentile (0..100), linear between the two nearest values.

    Raises MetricError for no values, values that are not finite, or q outside 0..100.
    """
    array = _vector(values, "the list of values")
    if _checks.number(q, "the percentile", MetricError) > 100:
        raise MetricError(f"the percentile is {_checks.show(q)}; give 0 to 100")
    return float(np.percentile(array, q))
