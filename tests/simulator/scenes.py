"""Workloads and clusters for tests; one byte takes one microsecond on a link of `BPS`."""

from __future__ import annotations

import random

from tfsched.ordering import Dag, Op, Resource
from tfsched.ordering.layers import Layer, LayerTable
from tfsched.simulator import Cluster, Method, Workload

BPS = 8e6


def layers(*rows: tuple[float, float, int]) -> LayerTable:
    """Layers from (forward µs, backward µs, bytes)."""
    return LayerTable(Layer(str(i), *row) for i, row in enumerate(rows, 1))


def random_layers(draw: random.Random, most: int = 8) -> LayerTable:
    return layers(
        *((draw.randint(0, 90), draw.randint(0, 90), draw.choice([0, 1, 7, 200, 999])) for _ in range(draw.randint(1, most)))
    )


def random_dag(draw: random.Random, size: int) -> Dag:
    """One link and one device; a recv may wait for ops, but not for another recv. In any order in the file."""
    ops = []
    for i in range(size):
        link = draw.random() < 0.5
        before = [op.name for op in ops if not link or op.resource == "cpu"]
        count = draw.randint(0, 3) if not link or draw.random() < 0.3 else 0
        inputs = tuple(draw.sample(before, min(count, len(before))))
        if link:
            ops.append(Op(f"n{i}", "link", inputs, None, draw.choice([0, 1, 3, 10, 250])))
        else:
            ops.append(Op(f"n{i}", "cpu", inputs, draw.choice([0.0, 0.3, 1.0, 2.5, 10.0, 100.0])))
    draw.shuffle(ops)
    return Dag([Resource("cpu", "compute"), Resource("link", "link", BPS)], ops)


def random_cluster(draw: random.Random) -> Cluster:
    architecture = draw.choice(["ps"] * 4 + ["ring", "allreduce"])
    cluster = Cluster(
        workers=draw.randint(1, 5),
        servers=draw.randint(1, 3),
        architecture=architecture,
        algorithm=draw.choice(["auto", "direct", "everybody", "doubling", "ring"]),
        bandwidth_bps=draw.choice([BPS, 3 * BPS]),
        server_bandwidth_bps=draw.choice([None, 2 * BPS]),
        startup_us=draw.choice([0.0, 4.0]),
        release_us=draw.choice([0.0, 9.0]),
        step_overhead_us=draw.choice([0.0, 50.0]),
        update_us_per_mb=draw.choice([0.0, 1e5]),
        processing_us_per_mb=draw.choice([0.0, 1e5]),
        join_us_per_mb=draw.choice([0.0, 1e5]),
        contention=draw.choice([1.0, 1.5]),
        barrier=draw.random() < 0.5,
        synchronous=architecture != "ps" or draw.random() < 0.6,
        updates=draw.choice(["tensor", "piece"]),
        straggler=draw.choice(["none", "normal", "exponential", "pareto"]),
        placement=draw.choice(["round_robin", "balanced"]),
        tasks_per_host=draw.randint(1, 2),
        colocated=draw.random() < 0.3,
        streams=draw.randint(1, 2),
    )
    if draw.random() < 0.7:
        return cluster
    hosts = [draw.choice([BPS, BPS / 2, 3 * BPS]) for _ in range(cluster.workers)]
    own = tuple(hosts[worker // cluster.tasks_per_host] for worker in range(cluster.workers))
    return cluster.replace(worker_bandwidth_bps=own)


def random_method(draw: random.Random) -> Method:
    return Method(
        "drawn",
        draw.choice([None, "fifo", "random", "layer", "tio"]),
        draw.choice(["fifo", "tictac", "bytescheduler", "p3"]),
        draw.choice([0, 50, 300]),
        draw.choice([0, 1, 100, 1000]),
        view=draw.choice(["pulls", "gradients"]),
    )


def forward_chain(count: int, op_us: float, size_bytes: int) -> Workload:
    return Workload.from_layers(layers(*[(op_us, 0.0, size_bytes)] * count), "forward")
