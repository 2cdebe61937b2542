"""Gives workers' computations cores of their own, as they have where each task is a machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence

from tfsched.bench.errors import BenchError

APART, SHARED, AUTO = "apart", "shared", "auto"
CHOICES = (AUTO, APART, SHARED)

# What TensorFlow calls the threads of its inter-op and intra-op pools. Everything else in a worker serves the network.
_COMPUTING = ("tf_Compute", "tf_numa", "tf_Eigen")


def are_apart(choice: str, intra_op_threads: str | int, cores: Iterable[int] | None = None) -> bool:
    """Whether workers compute on cores of their own.

    "auto" means so where there is more than one core, unless the user gave the workers other threads than the bench would.

    Args:
      choice: one of CHOICES.
      intra_op_threads: as the user gave it, "auto" or a number.
      cores: that this process may use; None finds out.

    Raises:
      BenchError: the choice is none, or there is only one core to part.
    """
    if choice not in CHOICES:
        raise BenchError(f"--cores is {choice!r}: give auto, apart or shared")
    several = len(set(os.sched_getaffinity(0) if cores is None else cores)) > 1
    if choice == APART and not several:
        raise BenchError("--cores is apart and there is only one core: give auto or shared")
    return choice == APART or (choice == AUTO and several and intra_op_threads == AUTO)


def halves(cores: Iterable[int]) -> tuple[set[int], set[int]]:
    """The cores for networks and parameter servers, and those for workers' computations, which are as many or one fewer."""
    ordered = sorted(cores)
    middle = len(ordered) - len(ordered) // 2
    return set(ordered[:middle]), set(ordered[middle:])


def shares(cores: Iterable[int], workers: int) -> list[set[int]]:
    """Each worker's cores of those for computing: as many for each and none for two, or all for all if there are too few."""
    ordered = sorted(cores)
    each = len(ordered) // workers
    if each == 0:
        return [set(ordered) for _ in range(workers)]
    return [set(ordered[worker * each : (worker + 1) * each]) for worker in range(workers)]


def pin(workers: Sequence[int], others: Iterable[int]) -> None:
    """Pins the threads that some processes have now; what these start later inherits it.

    Args:
      workers: ids of the processes that compute, in the order of their tasks.
      others: ids of those that do not.
    """
    network, computing = halves(os.sched_getaffinity(0))
    for process in others:
        for thread, _ in _threads(process):
            _set(thread, network)
    for process, own in zip(workers, shares(computing, len(workers)), strict=True):
        for thread, name in _threads(process):
            _set(thread, own if name.startswith(_COMPUTING) else network)


def _threads(process: int) -> list[tuple[int, str]]:
    """Ids and names of a process's threads; none if it has ended."""
    found = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{process}/task/{thread}/comm") as file:
                found.append((int(thread), file.read().strip()))
    return found


def _set(thread: int, cores: set[int]) -> None:
    with contextlib.suppress(OSError):  # it has ended
        os.sched_setaffinity(thread, cores)
