"""The log of a tuning: one record a sample, and all of them as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple

from .space import Setting

COLUMNS = (
    "number", "partition_bytes", "credit_bytes", "policy", "seconds",
    "best_partition_bytes", "best_credit_bytes", "best_policy", "best_seconds", "why",
)  # fmt: skip


class Record(NamedTuple):
    """One sample.

    `number` counts from 1; `best` is the setting that is taken for the best when the sample is known, and `best_seconds` the
    geometric mean of its samples until then; `why` says what the sample was for.
    """

    number: int
    setting: Setting
    seconds: float
    best: Setting
    best_seconds: float
    why: str


def csv_text(records: Sequence[Record]) -> str:
    """The records as CSV, under COLUMNS; seconds with all their digits."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in records:
        writer.writerow([one.number, *one.setting, repr(one.seconds), *one.best, repr(one.best_seconds), one.why])
    return out.getvalue()
