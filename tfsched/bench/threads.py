"""How many threads a worker computes with: fewer than there are cores, so that the network has some of its own."""

from __future__ import annotations

import os
from typing import Any

from tfsched.bench.errors import BenchError

AUTO = "auto"


def available_cores() -> int:
    """The cores that this process and its children may use."""
    return len(os.sched_getaffinity(0))


def resolve_threads(flag: str, value: str | int, workers: int, cores: int | None = None) -> int:
    """Threads of each worker for one of the two flags; 0 means TensorFlow's own default.

    "auto" gives half of the cores to computing, shared by the workers, who all run on this machine. Of a worker's share one
    core is for what TensorFlow does beside computing (it receives tensors and starts ops): an op is divided among the
    intra-op threads, so whoever interrupts one of them holds up all. At least one intra-op thread and two inter-op threads.
    A host of a real cluster has its network to itself; here the other half of the cores carries what moves the bytes.

    Args:
        flag: "intra_op_threads" or "inter_op_threads", for the error.
        value: "auto", or a number of threads.
        workers: how many share the machine.
        cores: of the machine; None finds out.

    Raises:
        BenchError: the value is neither.
    """
    if value == AUTO:
        # With a single inter-op thread TensorFlow sends nothing while it computes, in any setting.
        share = (cores or available_cores()) // 2 // workers
        return max(2, share) if flag == "inter_op_threads" else max(1, share - 1)
    try:
        threads = int(value)
    except ValueError:
        threads = -1
    if threads < 0:
        raise BenchError(f"--{flag} is {value!r}: give auto, 0 (TensorFlow's default) or a number of threads")
    return threads


def describe_threads(threads: dict[str, Any]) -> str:
    """One sentence for the table's caption, from a result's `threads`."""
    counts = []
    for kind in ("intra", "inter"):
        count = threads[f"worker_{kind}_op"]
        counts.append(f"{count or 'the default'} {kind}-op")
    where = f"on {threads['cores'] // 2} core(s) for computing only" if threads["apart"] else "anywhere"
    return f"a worker computes with {' and '.join(counts)} thread(s), {where}; the machine has {threads['cores']} core(s)"
