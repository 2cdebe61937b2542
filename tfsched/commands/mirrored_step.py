"""The doctor's all-reduces: steps of MultiWorkerMirroredStrategy in two processes, and what became of them.

Started as ``python -m tfsched.commands.mirrored_step CLUSTER``, a JSON object with the addresses of two workers. Prints one
JSON object. The first worker starts the second, with its number as another argument.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tfsched.commands.step_process import answer

_VARIABLES = 4
_STEPS = 3
_END_S = 30


def run(cluster: dict[str, list[str]], index: int) -> dict[str, Any]:
    """Runs steps, scheduled, with the barrier kept and crossed.

    Returns:
      ``exchanged`` of ``variables`` gradients were all-reduced by themselves in a step, ``crossing`` steps of ``steps`` left
      their updates to the background, ``trained`` tells whether rightly. ``errors`` of the pass, and the last ``report``.
    """
    import tensorflow as tf

    import tfsched
    from tfsched.grappler.bridge import pass_stats

    strategy = tf.distribute.MultiWorkerMirroredStrategy(tfsched.cluster_resolver(cluster, "worker", index))
    with strategy.scope():
        variables = [tf.Variable(tf.zeros([256, 256])) for _ in range(_VARIABLES)]

    @tf.function
    def train() -> None:
        def replica() -> None:
            # The workers' number, but nobody can know without the value.
            gradients = [tf.sign(tf.abs(variable.read_value()) + 1.0) for variable in variables]
            gradients = tf.distribute.get_replica_context().all_reduce("sum", gradients)
            for variable, gradient in zip(variables, gradients, strict=True):
                variable.assign_sub(gradient)

        strategy.run(replica)

    def steps(options: tfsched.Options) -> dict[str, int]:
        before = tfsched.stats()
        tfsched.enable(options)
        for _ in range(_STEPS):
            train()
        tfsched.drain()
        after = tfsched.stats()
        return {name: int(after[name] - before[name]) for name in ("all_reduces", "background_calls")}

    kept = steps(tfsched.Options(strict=True))
    crossed = steps(tfsched.Options(barrier=False))
    # Each step takes the number of workers from every element.
    trained = all((variable.numpy() == -2 * len(cluster["worker"]) * _STEPS).all() for variable in variables)
    seen = pass_stats()
    return {
        "variables": _VARIABLES,
        "exchanged": kept["all_reduces"] / _STEPS,
        "steps": _STEPS,
        "crossing": crossed["background_calls"],
        "trained": bool(trained),
        "errors": seen.errors,
        "report": seen.last_error or seen.last_report,
    }


def _with_the_other(cluster: dict[str, list[str]]) -> dict[str, Any]:
    command = [sys.executable, "-m", "tfsched.commands.mirrored_step", json.dumps(cluster), "1"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet) as other:
        try:
            made = run(cluster, 0)
            other.wait(_END_S)  # what this process has sent last may still be on its way
            return made
        finally:
            other.kill()


if __name__ == "__main__":
    addresses = json.loads(sys.argv[1])
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    answer(lambda: run(addresses, number) if number else _with_the_other(addresses))
