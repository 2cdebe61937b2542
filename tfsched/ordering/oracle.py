"""Time oracles: how long each op takes when its resource is dedicated to it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from . import _checks
from ._checks import show
from .dag import Dag, DagError

# 2^62 ns: the largest sum that still leaves room for one addition in 64-bit integers.
MAX_TOTAL_US = 2**62 / 1000


class OracleError(ValueError):
    """Measured times that cannot be used; the message is one sentence that names the op."""


class TimeOracle:
    """The minimum of all measured times of each op (TicTac, section 5, "Time Oracle").

    The minimum is the run least disturbed by other ops on the same resource, which is what section
    3 means by a dedicated resource.
    """

    def __init__(self, times_us: Mapping[str, float]) -> None:
        """Take op name -> time in µs. Raises OracleError for a time that is not finite and >= 0."""
        self._times_us: dict[str, float] = {}
        self._keep_minimum(times_us, "")

    def _keep_minimum(self, times_us: Mapping[str, float], where: str) -> None:
        if not isinstance(times_us, Mapping):
            raise OracleError(f"the times{where} are {show(times_us)}; give op name -> µs")
        for name, value in times_us.items():
            _checks.name(name, f"an op's name in the times{where}", OracleError)
            what = f"the time of op {show(name)}{where}"
            time_us = _checks.number(value, what, OracleError)
            self._times_us[name] = min(time_us, self._times_us.get(name, math.inf))

    @classmethod
    def from_steps(cls, steps: Iterable[Mapping[str, float]]) -> TimeOracle:
        """Build the oracle from traced steps, each op name -> time in µs.

        An op need not occur in every step. Raises OracleError for a bad time or no step at all.
        """
        oracle = cls({})
        count = 0
        for count, step in enumerate(steps, 1):
            oracle._keep_minimum(step, f" in step {count - 1}")
        if count == 0:
            raise OracleError("there are no traced steps; trace at least one")
        return oracle

    def __len__(self) -> int:
        return len(self._times_us)

    def __contains__(self, op_name: object) -> bool:
        return op_name in self._times_us

    def time_us(self, op_name: str, default: float | None = None) -> float:
        """Return the op's time in µs, or `default`; OracleError if it has neither."""
        if op_name in self._times_us:
            return self._times_us[op_name]
        if default is None:
            raise OracleError(f"op {show(op_name)} was never measured; trace it or give a default")
        return default

    def apply(self, dag: Dag) -> dict[str, float]:
        """Return op name -> µs for every op of `dag`; the dag's own time where never measured."""
        own_us = dag.times_us()
        return {op.name: self.time_us(op.name, t) for op, t in zip(dag.ops, own_us, strict=True)}


def general_time(dag: Dag) -> dict[str, float]:
    """Return the general time oracle of TicTac, equation 6: 1 for a recv op, 0 for any other."""
    recvs = set(dag.recv_indices)
    return {op.name: float(i in recvs) for i, op in enumerate(dag.ops)}


def times_ns(dag: Dag, times_us: Mapping[str, float] | None = None) -> list[int]:
    """Return the time of every op in file order, rounded to whole nanoseconds.

    The orderings add and compare times; in integers the result does not depend on the order of the
    additions, so equal sums are equal and ties are real ties.
    Raises DagError for a bad time, or if all times together exceed 2^62 ns (146 years).
    """
    in_us = dag.times_us(times_us)
    if sum(in_us) > MAX_TOTAL_US:
        longest = max(range(len(in_us)), key=in_us.__getitem__)
        raise DagError(
            f"all ops together take more than 2^62 ns (op {show(dag.ops[longest].name)} alone "
            f"{in_us[longest]:g} us); check that the times are in microseconds"
        )
    return [round(t * 1000.0) for t in in_us]
