"""The bounds between which a step lies, for E and S (docs/metrics.md), from the description alone."""

from __future__ import annotations

from .cluster import Cluster
from .pieces import servers_of
from .workload import Workload


def bounds_us(workload: Workload, cluster: Cluster, factor: float = 1.0) -> tuple[float, float]:
    """(upper, lower) bound of a step in µs: TicTac's equations 1 and 2 with pulling and pushing as one resource each.

    Compute is the sum of op times times `factor`, over the streams. Pulling (pushing) alone takes as long as the busiest
    link, or the busiest connection with a start-up for each whole parameter. All-reduces have one resource for both.
    """
    compute_us = workload.compute_us * factor / max(cluster.streams, workload.streams)
    sizes = [p.size_bytes for p in workload.parameters]
    if cluster.all_reduces:
        rounds = 2.0 * (cluster.workers - 1)
        # Messages to different workers start at once.
        startup_us = cluster.startup_us * (rounds if cluster.architecture == "ring" else min(cluster.workers - 1, 2))
        slowest_bps = min(cluster.hosts()[2])
        ring_us = sum(
            startup_us + rounds * size / cluster.workers * 8e6 / slowest_bps
            for size, p in zip(sizes, workload.parameters, strict=True)
            if p.made_by
        )
        return compute_us + ring_us, max(compute_us, ring_us)
    of_worker, of_server, host_bps = cluster.hosts()
    servers = servers_of(workload.parameters, cluster)
    parts = [compute_us]
    for used in ([p.pulled for p in workload.parameters], [bool(p.made_by) for p in workload.parameters]):
        on_server, count = [0] * cluster.servers, [0] * cluster.servers
        for size, server, one in zip(sizes, servers, used, strict=True):
            on_server[server] += size * one
            count[server] += one
        worker_bytes: dict[int, int] = {}
        server_bytes: dict[int, int] = {}
        for host in of_worker:
            worker_bytes[host] = worker_bytes.get(host, 0) + sum(on_server)
        local: dict[int, int] = {}
        for host in of_worker:
            local[host] = local.get(host, 0) + 1
        for server, host in enumerate(of_server):
            remote = cluster.workers - local.get(host, 0)
            server_bytes[host] = server_bytes.get(host, 0) + on_server[server] * remote
            if host in worker_bytes:
                worker_bytes[host] -= on_server[server] * local[host]
        links = [size * 8e6 / host_bps[host] for table in (worker_bytes, server_bytes) for host, size in table.items()]
        connections = [
            count[server] * cluster.startup_us + on_server[server] * 8e6 / max(host_bps)
            for server in range(cluster.servers)
            if of_server[server] not in local
        ]
        parts.append(max([0.0, *links, *connections]))
    return sum(parts), max(parts)
