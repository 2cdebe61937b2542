"""A worker of a mixed cluster (mixed.py), which may have had other options before; runs inside of its task."""

from scenarios import mirrored

from tests.cluster.cluster import STOCK


def train(task, options, steps):
    """As scenarios.mirrored.train; without ``options`` tfsched is off."""
    if options is None and task.spec["protocol"] != STOCK and "mirrored" in task.state:
        mirrored.leave_stock(task)
    return mirrored.train(task, options, steps=steps)
