"""The doctor's worker and coordinator in one process: steps of a ParameterServerStrategy, and what became of them.

Started as ``python -m tfsched.commands.strategy_step CLUSTER``, a JSON object of job -> addresses. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tfsched.commands.step_process import answer

_VARIABLES = 4
_STEPS = 3
_DRAIN_S = 60.0


def run(cluster: dict[str, list[str]]) -> dict[str, Any]:
    """Runs steps, scheduled, with the barrier kept and crossed.

    Returns:
      Of the step that keeps the barrier: ``ordered``, whether transfers have ranks, ``kept``, what the pass said, ``moved``,
      how many went through the parameter server's scheduler. Of those that cross it: ``crossing`` of ``variables`` were
      updated in the background, ``trained`` tells whether rightly. ``errors`` of the pass, and the last ``report``.
    """
    import tensorflow as tf

    import tfsched
    from tfsched.grappler.bridge import pass_stats

    jobs = {job: cluster[job] for job in ("ps", "worker")}
    server = tfsched.Server(jobs, job_name="worker", task_index=0)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), task_type="chief", task_id=0, rpc_layer=tfsched.PROTOCOL
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        variables = [tf.Variable(tf.zeros([256, 256])) for _ in range(_VARIABLES)]

    @tf.function
    def total() -> Any:
        return tf.add_n([tf.reduce_sum(variable.read_value() + 1.0) for variable in variables])

    @tf.function
    def train() -> None:
        for variable in variables:
            # 1 everywhere, but nobody can know without the value.
            one = tf.sign(tf.abs(variable.read_value()) + 1.0)
            tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=1.0, delta=one)

    def step(function: Any) -> None:
        coordinator.schedule(function)
        coordinator.join()

    tfsched.enable(tfsched.Options(ordering="tio", strict=True))
    before = tfsched.stats(task="/job:ps/task:0")["tasks"]
    step(total)
    moved = tfsched.stats(task="/job:ps/task:0")["tasks"] - before
    kept = pass_stats()
    tfsched.enable(tfsched.Options(barrier=False))
    for _ in range(_STEPS):
        step(train)
    tfsched.drain(timeout_s=_DRAIN_S)
    crossed = pass_stats()
    # Each step takes 1 from every element.
    trained = all((variable.numpy() == -_STEPS).all() for variable in variables)
    del server
    return {
        "ordered": kept.ordered > 0,
        "kept": kept.last_report,
        "errors": crossed.errors,
        "moved": moved,
        "variables": _VARIABLES,
        "crossing": crossed.crossing,
        "trained": bool(trained),
        "report": crossed.last_error or crossed.last_report,
    }


if __name__ == "__main__":
    addresses = json.loads(sys.argv[1])
    answer(lambda: run(addresses))
