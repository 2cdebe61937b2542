"""Two thousand small all-reduced steps: memory, threads, files and what is remembered stay where they were after warm-up."""

import statistics

import pytest

from .cluster import Cluster, wait_until
from .test_long_run import sample

pytestmark = pytest.mark.timeout(300)
# Calls are remembered, up to 1,024 of them: it is warm behind those.
WINDOW, WINDOWS, WARM_UP = 100, 20, 12
ENVIRONMENT = {f"worker{index}": {"TFSCHED_TRACE_CAPACITY": "500"} for index in (0, 1)}
# What must be gone whenever nothing is under way.
EMPTY = ("queue_depth", "on_wire_bytes", "groups", "mailboxes", "expectations", "background_outstanding", "calls_awaited")
# Calls of a group whose agreements are remembered, cc/collective/statements.h.
REMEMBERED = 1024


@pytest.mark.parametrize("barrier", [True, False], ids=["barrier", "crossing"])
def test_two_thousand_all_reduces_leave_nothing_behind(nursery, barrier):
    samples = {"worker0": [], "worker1": []}
    with Cluster(ps=0, workers=2, nursery=nursery, mirrored=True, environment=ENVIRONMENT) as cluster:

        def everywhere(scenario, **arguments):
            pending = [cluster.submit(name, f"mirrored_long_run.{scenario}", **arguments) for name in cluster.names]
            return [one.result(100) for one in pending]

        everywhere("begin", options={"barrier": barrier})
        for window in range(1, WINDOWS + 1):
            assert everywhere("steps", count=WINDOW) == [[3.0 * WINDOW * window]] * 2
            for name, taken in samples.items():
                wait_until(lambda name=name: not any(cluster.stats(name)[key] for key in EMPTY), 20, f"{name} to be idle")
                taken.append(sample(cluster.pid(name)))
        for name in samples:
            stats = cluster.stats(name)
            assert stats["packs_scheduled"] == WINDOW * WINDOWS and stats["all_reduces"] == 2 * WINDOW * WINDOWS
            assert stats["all_reduces_failed"] == stats["packs_stock"] == stats["dropped"] == 0
            assert stats["calls_remembered"] <= REMEMBERED
            assert (stats["background_calls"] > 0) == (not barrier)
    for name, taken in samples.items():
        early, late = taken[WARM_UP : WARM_UP + 4], taken[-4:]
        for what, tolerance in (("resident_bytes", 6_000_000), ("threads", 2), ("files", 2)):
            first = statistics.median(one[what] for one in early)
            last = statistics.median(one[what] for one in late)
            print(f"{name} {what}: {first} -> {last}")
            # 6 MB over half a thousand steps is less than one lost gradient (80 KB) every six steps.
            assert last <= first + tolerance, f"{name}: {what} {[one[what] for one in taken]}"
