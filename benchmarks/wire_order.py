"""How often gRPC sends transfers in another order than they were handed to it (TicTac, section 5.1), from step traces.

    tfsched trace --model inception_v3 --setting tio --bandwidth 1gbit --batch 8 --steps 10 --out tio.json.gz
    python benchmarks/wire_order.py tio.json.gz

Of each connection and step, a transfer is in wrong order if it was through before one that had been handed over earlier.
"Written" is when gRPC let go of its bytes at the sender, "arrived" when the receiver's RecvTensor op ended, which its
threads may finish in any order; "earlier by" is the median over those that arrived in wrong order. Only ordered transfers of
more than 1 KiB count: smaller ones gRPC copies, and nobody knows when it writes them. The clocks of the two sides are never
compared.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import statistics
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

COPIED_BYTES = 1024


def in_wrong_order(handed: dict[str, tuple[int, int]], through_us: dict[str, int]) -> dict[str, int]:
    """Transfers that were through before one which was handed over earlier, and by how many µs.

    `handed` has the time of handing over and the rank, which is the order of those that were handed over together. What has
    no time in `through_us` is left out.
    """
    names = sorted((name for name in handed if name in through_us), key=lambda name: handed[name])
    wrong = {}
    latest_us = 0  # of those handed over earlier
    for name in names:
        if through_us[name] < latest_us:
            wrong[name] = latest_us - through_us[name]
        latest_us = max(latest_us, through_us[name])
    return wrong


def count(trace: Any) -> tuple[int, list[int], list[int]]:
    """Of all steps: transfers, and how much too early those in wrong order were written, and arrived."""
    transfers = 0
    written: list[int] = []
    arrived: list[int] = []
    for step in trace.steps:
        arrived_us = {name: arrived for name, (_, arrived) in step.transfers.items()}
        connections: dict[tuple[str, str], list[dict[str, Any]]] = collections.defaultdict(list)
        for row in step.sends:
            known = row["released_us"] >= 0 and f"{row['name']}@{row['to']}" in arrived_us
            if row["rank"] >= 0 and not row["dropped"] and row["bytes"] > COPIED_BYTES and known:
                connections[row["from"], row["to"]].append(row)
        for rows in connections.values():
            names = [f"{row['name']}@{row['to']}" for row in rows]
            handed = {name: (row["started_us"], row["rank"]) for name, row in zip(names, rows, strict=True)}
            released_us = {name: row["released_us"] for name, row in zip(names, rows, strict=True)}
            transfers += len(rows)
            written += in_wrong_order(handed, released_us).values()
            arrived += in_wrong_order(handed, arrived_us).values()
    return transfers, written, arrived


def main() -> None:
    """Print one row a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="+", help="files of tfsched trace")
    args = parser.parse_args()
    from tfsched.tracing import load_trace

    columns = ("trace", "steps", "transfers", "written in wrong order", "arrived in wrong order", "earlier by, ms")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for path in args.traces:
        trace = load_trace(path)
        transfers, *wrong = count(trace)
        cells = [f"{len(late)} ({len(late) / transfers:.2%})" if transfers else "-" for late in wrong]
        median = f"{statistics.median(wrong[1]) / 1e3:.1f}" if wrong[1] else "-"
        print(
            f"| {pathlib.Path(path).name} | {len(trace.steps)} | {transfers} | {' | '.join(cells)} | {median} |", flush=True
        )


if __name__ == "__main__":
    main()
