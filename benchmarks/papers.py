"""Runs tfsched's simulator with the settings of the papers' evaluations and prints the tables of docs/papers.md.

Usage: python benchmarks/papers.py [--only PART ...]; without parts, all of them.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from evaluations import bytescheduler, bytescheduler_scaling, pace, pace_tensors, pace_wire, prophet, prophet_time, tictac

PARTS = {
    "tictac": tictac.gains,
    "tictac-efficiency": tictac.efficiency,
    "prophet": prophet.tables,
    "prophet-gains": prophet.gains,
    "prophet-workers": prophet.workers,
    "prophet-time": prophet_time.time,
    "pace": pace.speeds,
    "pace-tensors": pace_tensors.tensors,
    "pace-wire": pace_wire.wire,
    "pace-bandwidth": pace_tensors.bandwidth,
    "bytescheduler": bytescheduler.bandwidths,
    "bytescheduler-scaling": bytescheduler_scaling.scaling,
    "bytescheduler-p3": bytescheduler_scaling.p3,
    "bytescheduler-models": bytescheduler_scaling.models,
    "table1": bytescheduler.table1,
    "search": bytescheduler.search,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    for name in parser.parse_args().only:
        PARTS[name]()


if __name__ == "__main__":
    main()
