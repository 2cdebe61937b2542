"""What the simulator predicts for the settings of a run, from what the run has measured of its parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any

from tfsched.bench.errors import BenchError
from tfsched.bench.settings import ALL_REDUCING, find_settings
from tfsched.bench.simulated import method_of
from tfsched.bench.steady import LEAD, is_steady
from tfsched.errors import TfschedError
from tfsched.ordering import Plan

if TYPE_CHECKING:
    from tfsched.simulator import Cluster, Method, Workload

ITERATIONS = 30
# By how much computing may take less or more than was measured: runs of one program differ by so much.
UNSURE = 0.03
# Of a link's nominal bandwidth, behind TCP's, IP's and Ethernet's headers, where TCP alone was not measured.
PAYLOAD = 1448 / 1514
# Stock TensorFlow's tensors share a connection: of a larger one so much is sent before others have their turn. The windows
# of gRPC's streams follow the link; this is more than most tensors have, so that only what is far larger is passed. What
# tfsched hands over leaves in that order: measured steps of vgg16, with its 411 MB, are those without turns.
WINDOW_BYTES = 64_000_000
# The 95th percentile of a normal distribution, in standard deviations.
_P95 = 1.645


def predict(
    result: Mapping[str, Any],
    trace: Any = None,
    plans: Mapping[str, str] | None = None,
    iterations: int = ITERATIONS,
) -> dict[str, tuple[float, ...]]:
    """Return setting -> predicted median steps in seconds; stock TensorFlow's all-reduce is not simulated.

    There are three: computing takes UNSURE less than was measured, as much, and UNSURE more. Where a large message has just
    been started, or not, when a gradient becomes ready that is urgent, they differ by far more than computing does.

    The simulator gets what computing alone takes, how fast bytes move alone, across the barrier with servers how fast they
    move both ways at once (`both_s`), across it how long p3 takes from one piece to the next (`pieces_s`), and how much
    longer computing takes while the links are busy (`beside_s`). Nothing is fitted to the steps that it predicts.

    Args:
      result: of a model and a number of workers, from `report.build_result`.
      trace: a `tfsched.StepTrace` of steps that keep the barrier: the graph and its ops' times.
      plans: setting -> the plan that it ran, as text. Of others that need one the ordering plans the workload.
      iterations: simulated steps.

    Raises:
      BenchError: there is no trace, or no limited link.
      TfschedError: the trace cannot be used.
    """
    from tfsched.simulator import simulate

    all_reducing = result["api"] in ALL_REDUCING
    if trace is None:
        raise BenchError("it needs a traced step of a session that keeps the barrier; add vanilla to --settings")
    workload, alike = (_all_reducing if all_reducing else _with_servers)(result, trace)
    workloads = [_scaled(workload, factor) for factor in (1.0 - UNSURE, 1.0, 1.0 + UNSURE)]
    predicted = {}
    for setting in find_settings(list(result["settings"])):
        if all_reducing and setting.options is None:
            continue
        text = (plans or {}).get(setting.name)
        plan = Plan.from_json(text) if text else None
        method = method_of(setting, all_reducing, plan, result["workers"], result["bandwidth_bps"] or 0)
        cluster = _sending(alike, method, stock=setting.options is None, both_ways=_both_ways(result["bounds"]))
        if method.policy == "p3" and method.barrier is False:
            cluster = dataclasses.replace(cluster, release_us=_release_us(result["bounds"], workload, cluster, method))
        predicted[setting.name] = tuple(
            simulate(one, cluster, method, iterations=iterations, seed=1).median_us / 1e6 for one in workloads
        )
    return predicted


def add_to(result: dict[str, Any], trace: Any = None, plans: Mapping[str, str] | None = None) -> None:
    """Write what is predicted to each setting of `result`.

    `predicted_s` is the mean of what `predict` gives, `predicted_range_s` the least and the most of it, `prediction_error`
    0.01 where 1 % more was predicted than measured.

    What cannot be predicted has None, and a note says why. Another one says so if blocks are too short for a steady state.
    """
    try:
        predicted = predict(result, trace, plans)
    except TfschedError as error:  # what was measured stands without it
        predicted = {}
        result["notes"] = [*result.get("notes", []), f"no prediction: {error}"]
    block = result["block"]
    if predicted and not is_steady(block) and any(setting.crosses_barrier for setting in find_settings(list(predicted))):
        result["notes"] = [
            *result.get("notes", []),
            f"predictions are of the steady state, and blocks of {block} steps are measured with their ends; "
            f"give --block {2 * LEAD + 1} or more",
        ]
    for name, setting in result["settings"].items():
        steps_s = predicted.get(name)
        step_s = None if steps_s is None else sum(steps_s) / len(steps_s)
        setting["predicted_s"] = step_s
        setting["predicted_range_s"] = None if steps_s is None else [min(steps_s), max(steps_s)]
        setting["prediction_error"] = None if step_s is None else step_s / setting["median_s"] - 1.0


def note(settings: Mapping[str, Any]) -> list[str]:
    """Which settings' steps hang on little: their predictions differ by more than computing does; a line, or none."""
    wide = []
    for name, setting in settings.items():
        least_s, most_s = setting.get("predicted_range_s") or (0.0, 0.0)
        if most_s - least_s > 2 * UNSURE * most_s + 0.01 * most_s:
            wide.append(f"{name} {least_s:.3f} to {most_s:.3f} s")
    if not wide:
        return []
    return [
        f"predictions hang on whether computing takes {UNSURE:.0%} less or more: {', '.join(wide)}; the table has the mean"
    ]


def _sending(cluster: Cluster, method: Method, *, stock: bool, both_ways: float) -> Cluster:
    """The cluster as a setting uses its links and servers: `both_ways` is a direction's share of its bandwidth."""
    if cluster.architecture != "ps":
        return cluster
    changes: dict[str, Any] = {"window_bytes": WINDOW_BYTES if stock else 0}
    if method.barrier is False:
        # Links carry both directions nearly all the time.
        changes["bandwidth_bps"] = cluster.bandwidth_bps * both_ways
        # Servers update piece by piece, as soon as a piece of all workers is there.
        if method.partition_bytes or _cuts(method.plan):
            changes["updates"] = "piece"
    return dataclasses.replace(cluster, **changes)


def _cuts(plan: Plan | None) -> bool:
    return plan is not None and bool(plan.pieces or any(plan.partition_bytes.values()))


def _contention(bounds: Mapping[str, Any]) -> float:
    return max(1.0, (bounds.get("beside_s") or 0.0) / bounds["compute_s"])


def _both_ways(bounds: Mapping[str, Any]) -> float:
    """Which share of its bandwidth a direction of the links has while the other one is busy, too."""
    both_s = bounds.get("both_s")
    return min(1.0, bounds["communication_s"] / both_s) if both_s else 1.0


def _release_us(bounds: Mapping[str, Any], workload: Workload, cluster: Cluster, method: Method) -> float:
    """From a piece's last byte until the next one may start, from what the pieces take beyond what their bytes do."""
    from tfsched.simulator import simulate

    alone_s, pieces_s = bounds.get("exchange_s" if cluster.all_reduces else "both_s"), bounds.get("pieces_s")
    if not alone_s or not pieces_s or not method.partition_bytes:
        return 0.0
    if cluster.all_reduces:
        one_step = dataclasses.replace(method, barrier=True)
        pieces = simulate(workload, cluster, one_step, iterations=1, warmup=0).messages // cluster.workers
    else:
        pieces = sum(-(-one.size_bytes // method.partition_bytes) for one in workload.parameters if one.pulled)
    return max(0.0, pieces_s - alone_s) * 1e6 / max(pieces, 1)


def _drift(result: Mapping[str, Any]) -> dict[str, Any]:
    """How much the steps of several workers vary, from the spread of computing alone."""
    spread = result["bounds"]["compute_p95_over_p50"] - 1.0
    if result["workers"] < 2 or spread <= 0.0:
        return {}
    return {"straggler": "normal", "straggler_scale": spread / _P95}


def _all_reducing(result: Mapping[str, Any], trace: Any) -> tuple[Workload, Cluster]:
    from tfsched.simulator import Cluster, workload_of_trace

    bounds, workers = result["bounds"], result["workers"]
    if result["bandwidth_bps"] is None:
        raise BenchError("the links have no limit; give --bandwidth")
    workload = _alone(workload_of_trace(trace), bounds["compute_s"] * 1e6)
    tcp_s, closed_form_s = bounds.get("tcp_s"), bounds.get("closed_form_s")
    share = PAYLOAD if tcp_s is None or closed_form_s is None else closed_form_s / tcp_s
    cluster = Cluster(
        workers=workers,
        architecture="allreduce",
        bandwidth_bps=result["bandwidth_bps"] * share,
        join_us_per_mb=(bounds.get("join_s") or 0.0) / 2 * 1e6 / (result["gradient_bytes"] / 1e6),
        contention=_contention(bounds),
        **_drift(result),
    )
    return workload, cluster


def _alone(workload: Workload, compute_us: float) -> Workload:
    """The workload as it is computed alone, in `compute_us`.

    In traced steps, which keep the barrier, the links are idle in the forward pass. The all-reduces are beside the backward
    pass, so it is what took longer, unless that would be more than half of it.
    """
    backward = {op for parameter in workload.parameters for op in parameter.made_by}
    backward_us = sum(op.time_us for op in workload.ops if op.name in backward)
    left_us = compute_us - (workload.compute_us - backward_us)
    if not 0.5 * backward_us <= left_us <= backward_us:
        return _scaled(workload, compute_us / workload.compute_us)
    return _scaled(workload, left_us / backward_us, backward)


def _scaled(workload: Workload, factor: float, names: Container[str] | None = None) -> Workload:
    """The workload with `factor` times the time of each op, or of those with these names."""
    ops = tuple(
        op if names is not None and op.name not in names else dataclasses.replace(op, time_us=op.time_us * factor)
        for op in workload.ops
    )
    return dataclasses.replace(workload, ops=ops)


def _with_servers(result: Mapping[str, Any], trace: Any) -> tuple[Workload, Cluster]:
    from tfsched.simulator import Cluster, methods, simulate, update_us_per_mb_of_trace, workload_of_trace

    bounds, workers, servers = result["bounds"], result["workers"], result["ps"]
    workload = workload_of_trace(trace, phase=result["phase"])
    endless = Cluster(bandwidth_bps=1e15, servers=servers)
    alone_us = simulate(workload, endless, methods()["tio"], iterations=1, warmup=1).median_us
    factor = bounds["compute_s"] * 1e6 / alone_us
    workload = _scaled(workload, factor)
    # The link that carries most: a worker's, or that of the server with most bytes, to all workers.
    by_server: dict[int, int] = {}
    for one in workload.parameters:
        if one.pulled:
            by_server[one.server or 0] = by_server.get(one.server or 0, 0) + one.size_bytes
    most_bytes = max(sum(by_server.values()), workers * max(by_server.values()))
    cluster = Cluster(
        workers=workers,
        servers=servers,
        bandwidth_bps=most_bytes * 8 / bounds.get("pull_s", bounds["communication_s"]),
        update_us_per_mb=update_us_per_mb_of_trace(trace),
        contention=_contention(bounds),
        **_drift(result),
    )
    return workload, cluster
