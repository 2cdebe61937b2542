"""What a parameter server holds while several workers train on it: stock TensorFlow, and across the barrier.

One parameter server, a coordinator, workers on loopback. A row is the server's own memory while it trains, less what it held
before: the largest that was seen, and at the end. Training across the barrier may hold 1.25 times what stock TensorFlow
holds, and a constant (TFSCHED_SERVER_MEMORY_BYTES, here 0). Both settings run in turn; the figures are medians.

    python benchmarks/server_memory.py --workers 1,4,16 --rounds 3
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

MB = 1 << 20
CROSSING = {"policy": "bytescheduler", "barrier": False, "partition_bytes": 1 << 18}
SETTINGS: dict[str, dict[str, Any] | None] = {"stock": None, "across the barrier": CROSSING}
SWEEP_S = 2  # what is stale is let go of once a second


def held_by_server(nursery: Any, options: dict[str, Any] | None, workers: int, layers: int, steps: int) -> tuple[int, int]:
    """Bytes that training adds to the parameter server: the most that was seen, and at the end."""
    from tests.cluster.cluster import STOCK, Cluster

    protocol = STOCK if options is None else "grpc+tfsched"
    environment = {"ps0": {"TFSCHED_SERVER_MEMORY_BYTES": "0"}}
    with Cluster(nursery=nursery, workers=workers, coordinator=True, protocol=protocol, environment=environment) as cluster:
        cluster.call("ps0", "memory.give_back")
        before = most = cluster.call("ps0", "memory.anonymous_bytes")
        pending = cluster.submit("chief0", "memory.train", options=options, layers=layers, steps=steps)
        while not pending.done():
            most = max(most, cluster.call("ps0", "memory.anonymous_bytes"))
            time.sleep(0.1)
        pending.result(1)
        time.sleep(SWEEP_S)
        return most - before, cluster.call("ps0", "memory.anonymous_bytes") - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,4,16", help="how many, a row each")
    parser.add_argument("--layers", type=int, default=16, help="of 1 MB each")
    parser.add_argument("--steps", type=int, default=40, help="for each worker")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    from tests.cluster.cluster import task_environment
    from tests.cluster.nurseries import Nurseries

    print(f"{arguments.layers} MB of weights, {arguments.steps} steps a worker, medians of {arguments.rounds}")
    print("| workers | stock: most, at the end | across the barrier: most, at the end | ratio of most |")
    print("|---|---|---|---|")
    with Nurseries(task_environment()) as nursery:
        for workers in (int(text) for text in arguments.workers.split(",")):
            seen: dict[str, list[tuple[int, int]]] = {name: [] for name in SETTINGS}
            for _ in range(arguments.rounds):
                for name, options in SETTINGS.items():
                    steps = arguments.steps * workers
                    seen[name].append(held_by_server(nursery, options, workers, arguments.layers, steps))
            medians = {
                name: [statistics.median(values) / MB for values in zip(*pairs, strict=True)] for name, pairs in seen.items()
            }
            cells = [f"{most:.1f} MB, {end:.1f} MB" for most, end in medians.values()]
            ratio = medians["across the barrier"][0] / medians["stock"][0]
            print(f"| {workers} | {' | '.join(cells)} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
