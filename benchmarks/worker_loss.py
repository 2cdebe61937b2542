"""Kills workers under a coordinator and counts how often each step was applied: stock TensorFlow, and across the barrier.

Two workers, one parameter server, loopback. Every step adds one to an element of its own in each of four variables; workers
are killed and restarted in turn, evenly over the run. A step that was applied less than once was lost, one that was applied
more than once was run again: stock TensorFlow promises at least once, tfsched across the barrier once (docs/tensorflow2.md).

    python benchmarks/worker_loss.py --kills 10 --steps 1500
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

SETTINGS: dict[str, dict[str, Any] | None] = {"stock": None, "crossing": {"policy": "bytescheduler", "barrier": False}}
WORKERS = ("worker0", "worker1")


def lose_workers(options: dict[str, Any] | None, kills: int, steps: int, limit_s: float) -> dict[str, Any]:
    """Runs the steps on a cluster of its own and kills `kills` workers; the scenario's result."""
    from tests.cluster.cluster import Cluster, wait_until

    with Cluster(workers=2, coordinator=True) as cluster:
        pending = cluster.submit("chief0", "counting.count", options=options, steps=steps)
        for kill in range(kills):
            wanted = (kill + 1) * steps // (kills + 1)

            def reached(wanted: int = wanted) -> bool:
                return pending.done() or cluster.call("chief0", "counting.progress") >= wanted

            wait_until(reached, limit_s, f"{wanted} steps")
            cluster.kill(WORKERS[kill % 2])
            cluster.restart(WORKERS[kill % 2])
        result: dict[str, Any] = pending.result(limit_s)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--limit_s", type=float, default=300.0, help="for any single wait")
    arguments = parser.parse_args()
    print("| setting | steps | kills | lost | applied more than once | put back unconfirmed |")
    print("|---|---|---|---|---|---|")
    wrong = False
    for name, options in SETTINGS.items():
        result = lose_workers(options, arguments.kills, arguments.steps, arguments.limit_s)
        by_step = list(zip(*result["counts"], strict=True))
        lost = sum(min(counts) < 1 for counts in by_step)
        again = sum(max(counts) > 1 for counts in by_step)
        wrong = wrong or lost > 0 or (again > 0 and options is not None)
        print(f"| {name} | {len(by_step)} | {arguments.kills} | {lost} | {again} | {result['given back']} |", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
