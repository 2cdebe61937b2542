"""Runs a workload on a cluster under a method: arrays for the engine, and its answer as a Result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfsched._rules import WHOLE_BYTES
from tfsched.ordering._checks import show

from . import native
from .cluster import ALGORITHMS, Cluster
from .cutting import Piece
from .errors import SimulatorError
from .method import Method
from .pieces import Scheduled, schedule
from .result import Result, make_result
from .workload import Workload

# The op that ends a step in which nothing reads some parameter: the step has to pull it all the same.
ARRIVALS = "(arrivals)"
MAX_STEPS = 100_000
# What is kept for each worker: about 30 bytes an op or piece.
_MAX_CELLS = 100_000_000
# A message of all steps and workers takes 3 to 9 µs of processor time, an op a tenth of that; beyond are hours.
_MAX_MESSAGES = 200_000_000
_MAX_OPS = 2_000_000_000
_MAX_CONNECTIONS = 4_000_000
_MAX_EVENTS = 10_000_000  # of a timeline


def simulate(
    workload: Workload,
    cluster: Cluster,
    method: Method,
    *,
    iterations: int = 10,
    warmup: int = 2,
    seed: int = 0,
    timeline: bool = False,
) -> Result:
    """Simulate `warmup` + `iterations` steps of every worker; docs/simulator.md describes the model.

    Args:
      workload: what one worker does in a step.
      cluster: how many do it, and over what.
      method: how transfers are scheduled.
      iterations: steps that count.
      warmup: steps before them.
      seed: of the stragglers, of the order in which unordered pulls are asked for, and of orderings that draw.
      timeline: keep every op, transfer and update of all steps in `Result.events`.

    Raises:
      SimulatorError: something cannot be simulated.
      OrderingError: the method's ordering is unknown or cannot order the workload.
    """
    for name, value, least in (("iterations", iterations, 1), ("warmup", warmup, 0), ("seed", seed, 0)):
        most = 2**63 - 1 if name == "seed" else MAX_STEPS
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise SimulatorError(f"{name} is {show(value)}; give a whole number from {least} to {most}")
    scheduled = schedule(workload, cluster, method, seed)
    model = make_model(workload, cluster, method, scheduled, warmup, iterations, seed)
    if timeline:
        events = cluster.workers * (len(workload.ops) + 2 * len(scheduled.pieces)) * model["steps"]
        if events > _MAX_EVENTS:
            raise SimulatorError(
                f"the timeline would have about {events} events, more than {_MAX_EVENTS}; give fewer workers or iterations"
            )
        model["recorded_from"] = 0
    output = native.run(model)
    return make_result(workload, cluster, method, scheduled, model, output, timeline)


def make_model(
    workload: Workload, cluster: Cluster, method: Method, scheduled: Scheduled, warmup: int, iterations: int, seed: int
) -> dict[str, Any]:
    """The fields of Model in cc/simulator/model.h."""
    all_reduces = cluster.all_reduces
    exchanges = cluster.architecture == "allreduce"
    steps = warmup + iterations
    _check_size(workload, cluster, scheduled, steps)
    first_gradient_op = workload.ops[workload.first_gradient_op].name if workload.ops else ""
    workload = scheduled.workload
    index = workload.index
    op_us = [op.time_us for op in workload.ops]
    op_inputs = [[index[name] for name in dict.fromkeys(op.inputs)] for op in workload.ops]
    op_reads: list[list[int]] = [[] for _ in workload.ops]
    unread = []
    for i, parameter in enumerate(workload.parameters):
        if bool(parameter.made_by) if all_reduces else parameter.pulled:
            for name in dict.fromkeys(parameter.read_by):
                op_reads[index[name]].append(i)
            if not parameter.read_by:
                unread.append(i)
    if unread or not op_us:
        op_us.append(0.0)
        op_inputs.append([])
        op_reads.append(unread)

    def ops_of(piece: Any, field: str) -> list[int]:
        names = (name for i in piece.parameters for name in getattr(workload.parameters[i], field))
        return [index[name] for name in dict.fromkeys(names)]

    def first_use(piece: Piece) -> int:
        """What orders pulls of equal priority, as plans are enforced. Orderings alone leave it to the listing."""
        if method.plan is None:
            return 0
        readers = (name for i in piece.parameters for name in workload.parameters[i].read_by)
        return min((index[name] for name in readers), default=len(index))

    pieces = scheduled.pieces
    pulled = [
        not all_reduces and piece.only != "push" and workload.parameters[piece.parameters[0]].pulled for piece in pieces
    ]
    push_inputs = [[] if piece.only == "pull" else ops_of(piece, "made_by") for piece in pieces]
    barrier = cluster.barrier if method.barrier is None else method.barrier
    worker_host, server_host, host_bps = cluster.hosts()
    push_policy = scheduled.policy
    if push_policy == "tictac" and not all_reduces:
        push_policy = "fifo"  # as the wire does: a counter would wait for gradients that are not made (docs/partitioning.md)
    return {
        "workers": cluster.workers,
        "servers": 0 if all_reduces else cluster.servers,
        "hosts": len(host_bps),
        "ops": len(op_us),
        "tensors": len(workload.parameters),
        "pieces": len(pieces),
        "orders": len(workload.request_orders),
        "origin_op": index.get(first_gradient_op, 0),
        "way": -1 if cluster.algorithm == "auto" else ALGORITHMS.index(cluster.algorithm),
        "streams": max(cluster.streams, workload.streams),
        "steps": steps,
        "measured_from": warmup,
        "recorded_from": max(steps - 2, 0),
        "barrier": barrier,
        "synchronous": cluster.synchronous,
        "update_pieces": cluster.updates == "piece",
        "shuffle": not scheduled.ordered,
        "seed": seed,
        "credit_bytes": scheduled.credit_bytes,
        "grace_us": cluster.grace_us,
        "window_bytes": cluster.window_bytes,
        # Of jobs beside others; see jobs.py.
        "priority": 0,
        "rate_bps": 0,
        "start_us": 0.0,
        "window_begin_us": 0.0,
        "window_end_us": 0.0,
        "exchange_piece_bytes": scheduled.exchange_bytes if exchanges else 0,
        "whole_bytes": WHOLE_BYTES,
        # What workers have measured after their first steps.
        "exchange_pace_bps": int(min(min(host_bps), 2**62)),
        "startup_us": cluster.startup_us,
        "release_us": cluster.release_us,
        "step_overhead_us": cluster.step_overhead_us,
        "update_us_per_byte": cluster.update_us_per_mb / 1e6,
        "processing_us_per_byte": cluster.processing_us_per_mb / 1e6,
        "contention": cluster.contention,
        "pull_policy": scheduled.policy,
        "push_policy": push_policy,
        "host_bps": host_bps,
        "worker_host": worker_host,
        "server_host": server_host,
        "compute_scale": cluster.compute_factors(steps, seed),
        "op_us": op_us,
        "op_inputs": op_inputs,
        "op_reads": op_reads,
        # Across the barrier what was updated is not asked for.
        "pull_inputs": [
            ops_of(piece, "asked_after") if pull and (barrier or not ops_of(piece, "made_by")) else []
            for piece, pull in zip(pieces, pulled, strict=True)
        ],
        "push_inputs": push_inputs,
        "piece_tensors": [piece.parameters for piece in pieces],
        "request_orders": [_order(pieces, order) for order in workload.request_orders],
        "tensor_bytes": [parameter.size_bytes for parameter in workload.parameters],
        "piece_hold_us": [piece.hold_us for piece in pieces],
        "piece_bytes": [piece.size_bytes for piece in pieces],
        "piece_server": [piece.server for piece in pieces],
        "piece_group": _groups(pieces) if not all_reduces else [-1] * len(pieces),
        "piece_pulled": pulled,
        "pull_rank": _ranks(pieces, pulled, scheduled.ordered, [(_pull_priority(p), first_use(p)) for p in pieces]),
        "push_rank": _ranks(
            pieces, [bool(ops) for ops in push_inputs], scheduled.ordered, [(p.priority, 0) for p in pieces]
        ),
    }


def _groups(pieces: list[Piece]) -> list[int]:
    """The number of each piece's group; -1: it is in none."""
    numbers: dict[tuple[int, ...], int] = {}
    return [numbers.setdefault(piece.group, len(numbers)) if piece.group else -1 for piece in pieces]


def _order(pieces: list[Piece], parameters: tuple[int, ...]) -> list[int]:
    """The pieces by the place of their first parameter in `parameters`; those of one parameter stay in their order."""
    place = {parameter: i for i, parameter in enumerate(parameters)}
    return sorted(range(len(pieces)), key=lambda i: min(place[parameter] for parameter in pieces[i].parameters))


def _check_size(workload: Workload, cluster: Cluster, scheduled: Scheduled, steps: int) -> None:
    """Refuses what would take more memory or time than anybody means."""
    workers, ops, pieces = cluster.workers, len(workload.ops), len(scheduled.pieces)
    if cluster.architecture == "ps" and workers * cluster.servers > _MAX_CONNECTIONS:
        raise SimulatorError(
            f"{workers} workers and {cluster.servers} servers have more than {_MAX_CONNECTIONS} connections; give fewer"
        )
    if workers * (ops + 2 * pieces + steps) > _MAX_CELLS or steps * pieces > _MAX_CELLS:
        raise SimulatorError(
            f"{workers} workers with {ops} ops and {pieces} pieces in {steps} steps do not fit into memory; give fewer"
        )
    messages = 2 * workers * pieces * steps
    if cluster.architecture == "allreduce":
        exchanged = sum(-(-max(piece.size_bytes, 1) // scheduled.exchange_bytes) for piece in scheduled.pieces)
        messages = 2 * workers * (workers - 1) * exchanged * steps
        if workers**2 > _MAX_CONNECTIONS:
            raise SimulatorError(f"{workers} workers have more than {_MAX_CONNECTIONS} connections; give fewer")
    if cluster.window_bytes:
        largest = max((piece.size_bytes for piece in scheduled.pieces), default=0)
        windows = sum(-(-piece.size_bytes // cluster.window_bytes) for piece in scheduled.pieces)
        if 2 * workers * windows * steps > _MAX_MESSAGES:
            raise SimulatorError(
                f"window_bytes is {cluster.window_bytes}, and {workers} workers that send pieces of up to {largest} bytes "
                f"in {steps} steps would take hours; give a larger one"
            )
    if messages > _MAX_MESSAGES or workers * ops * steps > _MAX_OPS:
        raise SimulatorError(
            f"{workers} workers with {ops} ops and {pieces} pieces in {steps} steps would take hours; give fewer of one"
        )


def _pull_priority(piece: Piece) -> float:
    return piece.priority if piece.pull_priority is None else piece.pull_priority


def _ranks(
    pieces: Sequence[Piece], used: Sequence[bool], ordered: bool, priorities: Sequence[tuple[float, int]]
) -> list[int]:
    """Place of each piece among those of its server; -1 for those that are not sent, or not ordered.

    Of each the number says what counts among equal priorities, and then its position.
    """
    counts: dict[int, int] = {}
    ranks = [-1] * len(pieces)
    for i in sorted(range(len(pieces)), key=lambda i: priorities[i]):
        if used[i] and ordered:
            ranks[i] = counts.get(pieces[i].server, 0)
            counts[pieces[i].server] = ranks[i] + 1
    return ranks
