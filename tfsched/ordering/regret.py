"""Plans for steps whose ops may take longer than they were traced: of an ordering's plans the one that loses least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .dag import Dag
from .decision import Decision
from .evaluate import evaluate
from .registry import get

# An op takes longer while the links are busy, and a trace of steps that keep the barrier shows little of that. Trainings on
# processors took 1.0 to 1.15 times as long (`compute_s` and `beside_s` in benchmarks/results).
FACTORS = (1.0, 1.07, 1.15)


def least_regret(dag: Dag, algorithm: str, seed: int = 0, factors: Sequence[float] = FACTORS) -> Mapping[str, float]:
    """Return what an ordering decides, so that it holds while ops take `factors` times as long as in `dag`.

    The ordering decides for each factor by itself. Each decision is evaluated (`evaluate`) for all factors, and its regret
    is how much longer than the best of them it takes at worst: the minimax regret rule (L. J. Savage, "The Theory of
    Statistical Decision", 1951). A plan that is as short as can be for the traced times often has no slack. If computing
    and sending take about as long, it may be more than 5 % longer than the best when ops take 1.15 times as long.

    Args:
      dag: whose recvs are ordered; the ops of its other resources may take longer.
      algorithm: the name of a registered ordering.
      seed: for orderings that draw.
      factors: the first is preferred where several decisions are equally good.

    Raises:
      OrderingError: no ordering has that name.
      DagError: of bad times.
    """
    ordering = get(algorithm)
    dags = [_slowed(dag, factor) for factor in factors]
    decided = [ordering(one, seed=seed) for one in dags]
    spans = [[evaluate(one, Decision.of(made)).makespan_us for one in dags] for made in decided]
    best = [min(column) for column in zip(*spans, strict=True)]
    regrets = [max(span / least if least else 1.0 for span, least in zip(row, best, strict=True)) for row in spans]
    chosen = min(range(len(decided)), key=lambda i: (round(regrets[i], 4), i))
    made = decided[chosen]
    if chosen and isinstance(made, Decision):
        made.notes["compute_factor"] = factors[chosen]
    return made


def _slowed(dag: Dag, factor: float) -> Dag:
    """The dag with computing `factor` times as long."""
    links = {op.resource for op in dag.recvs}
    times_us = zip(dag.ops, dag.times_us(), strict=True)
    ops = [op if op.resource in links else op._replace(time_us=time_us * factor) for op, time_us in times_us]
    return Dag(dag.resources.values(), ops)
