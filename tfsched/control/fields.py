"""What each number of tfsched.stats() is: counter or gauge, its name and unit as a metric, one line of help."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Kind(enum.Enum):
    """COUNTER only grows while the process lives; GAUGE is a state of now; TEXT is no number."""

    COUNTER = "counter"
    GAUGE = "gauge"
    TEXT = "text"


class Field(NamedTuple):
    """One entry of stats().

    Attributes:
      kind: see above.
      help: one line.
      name: of the metric without "tfsched_" and "_total"; "" for the entry's own.
      scale: a value of stats() times this is in the metric's unit (bytes, seconds).
    """

    kind: Kind
    help: str
    name: str = ""
    scale: float = 1.0


_C, _G, _T = Kind.COUNTER, Kind.GAUGE, Kind.TEXT

FIELDS: dict[str, Field] = {
    "capability": Field(_T, "what tells this tfsched from others"),
    "policy": Field(_T, 'policy set by configure; "graph": each graph\'s own'),
    "servers": Field(_G, "tfsched servers in this process"),
    "emulated": Field(_G, "1 where TFSCHED_EMULATED_BPS paces what is sent", "emulated_link"),
    # Transfers.
    "tasks": Field(_C, "ordered transfers handed to gRPC", "ordered_transfers"),
    "bytes": Field(_C, "bytes of ordered transfers handed to gRPC", "ordered_bytes"),
    "bypassed_tasks": Field(_C, "transfers without a rank, handed to gRPC at once", "bypassed_transfers"),
    "bypassed_bytes": Field(_C, "bytes of transfers without a rank"),
    "queue_depth": Field(_G, "ordered transfers that wait now", "queued_transfers"),
    "max_queue_depth": Field(_G, "most ordered transfers that have waited at a time", "most_queued_transfers"),
    "on_wire_bytes": Field(_G, "bytes of ordered transfers handed to gRPC and not yet written"),
    "reorderings": Field(_C, "ordered transfers that overtook an earlier one"),
    "late": Field(_C, "transfers that came after a higher rank had gone", "late_transfers"),
    "step_asides": Field(_C, "missing ranks given up"),
    "dropped": Field(_C, "transfers still queued when their step ended", "dropped_transfers"),
    "groups": Field(_G, "pairs of step and receiver with state"),
    "sending_us_total": Field(
        _C, "time in which a link has ordered transfers on the wire, added up over links", "sending_seconds", 1e-6
    ),
    "wire_byte_seconds": Field(_C, "bytes on the wire times seconds, added up over links"),
    "credit_in_force_bytes": Field(_G, "credit of the link that was used last; 0: no limit; -1: none was used"),
    "credit_bytes": Field(_G, "credit set by configure; -1: each graph's own", "configured_credit_bytes"),
    "rate_bps": Field(_G, "cap set by configure; 0: none", "rate_limit_bytes_per_second", 1 / 8),
    "steps": Field(_C, "steps that this process took part in and that have ended"),
    "step_us_total": Field(_C, "how long these steps took", "step_seconds", 1e-6),
    # Across the step's barrier.
    "crossing_variables": Field(_G, "variables that the last training graph prepared here updates across the barrier"),
    "background_calls": Field(_C, "updates begun in the background"),
    "background_done": Field(_C, "updates in the background that have ended"),
    "background_failed": Field(_C, "updates in the background that failed by themselves"),
    "background_outstanding": Field(_G, "updates under way across the barrier"),
    "waits": Field(_C, "reads that asked whether an update is outstanding"),
    "waits_blocked": Field(_C, "reads that found an update outstanding"),
    "wait_us_total": Field(_C, "time that reads waited for updates", "wait_seconds", 1e-6),
    "expectations": Field(_G, "updates that parameter servers expect"),
    "mailboxes": Field(_G, "mailboxes in use"),
    "sent_ahead": Field(_C, "updated values sent before the next step asked"),
    "sent_ahead_used": Field(_C, "values sent ahead and asked for unchanged"),
    "sent_ahead_missed": Field(_C, "values sent ahead and changed before they were asked for"),
    "sent_ahead_behind": Field(_C, "values sent ahead and used although others had updated the variable"),
    "updates_by_chunks": Field(_C, "updates made as their gradients arrived"),
    "updates_whole_after_all": Field(_C, "updates begun by chunks and made whole"),
    "updates_in_chunks": Field(_G, "updates by chunks under way"),
    "updates_made_before": Field(_C, "updates left out, for another attempt at the closure had made them"),
    "updates_kept": Field(_G, "updates remembered for that"),
    "beyond_stock_bytes": Field(_G, "memory held that stock TensorFlow would not hold"),
    "most_beyond_stock_bytes": Field(_G, "most of it reserved at a time"),
    "beyond_stock_limit_bytes": Field(_G, "what it is kept below"),
    "refused_for_memory": Field(_C, "updates by chunks and values to be sent ahead that were refused for that limit"),
    # All-reduces.
    "packs_scheduled": Field(_C, "stock all-reduces that were exchanged tensor by tensor"),
    "packs_stock": Field(_C, "stock all-reduces left to stock TensorFlow"),
    "all_reduces": Field(_C, "tensors exchanged by scheduled all-reduces"),
    "all_reduces_failed": Field(_C, "scheduled all-reduces that failed"),
    "calls_remembered": Field(_G, "stock all-reduces of which it is known what workers said"),
    "calls_awaited": Field(_G, "questions of other workers that wait for an answer"),
    # Receivers of chunks.
    "merges_in_place": Field(_C, "tensors whose chunks were received side by side"),
    "merges_copied": Field(_C, "tensors whose chunks had to be copied"),
}


def metric_name(key: str) -> str:
    """The metric of stats()' entry ``key``, "tfsched_ordered_bytes_total"; of one that FIELDS does not know, too."""
    field = FIELDS.get(key, Field(Kind.GAUGE, ""))
    return f"tfsched_{field.name or key}" + ("_total" if field.kind is Kind.COUNTER else "")
