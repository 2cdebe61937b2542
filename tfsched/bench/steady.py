"""The time of a step from a block of consecutive ones: of a long block its steady state, without its ends."""

from __future__ import annotations

from collections.abc import Sequence

LEAD = 3
"""Steps (of each worker) that a block takes to reach its steady state: the first has no updates to wait for, the next few
meet transfers that are not yet as far behind as they will be."""


def is_steady(count: int) -> bool:
    """Whether a block of `count` steps is long enough to have a steady state: more of it is counted than left out."""
    return count > 2 * LEAD


def step_time_s(ends_s: Sequence[float], block_s: float, count: int, each: int = 1) -> float:
    """Seconds of a step of one worker in a block of `count` steps of each worker.

    The first step of a block waits for no updates of a step before it, and behind the last one the block waits until its
    updates are applied. Both happen once, however long training goes on. So of a long block the steps between are counted,
    by when they ended, and only of a short one the whole by its length.

    With several workers that share one queue of steps (`each`), the ends of all are one list, in which no worker's next end
    has a fixed place. But any `each` consecutive ends are one of each worker where all keep the same pace, so their
    mean moves on by a worker's step in `each` places and, wherever in a step each worker is, by equal parts of it at each
    place. The last window is the last one whose steps ended while no worker had run out of steps.

    Args:
        ends_s: when each of the `count * each` steps ended, since the block's begin, sorted.
        block_s: how long the block took until its last update was applied.
        count: steps of each worker.
        each: workers that share the steps; 1 where one client runs all of them in one step.

    Raises:
        ValueError: if there is not one end for each step.
    """
    if len(ends_s) != count * each:
        raise ValueError(f"{len(ends_s)} ends given for {count} steps of {each} worker(s): give {count * each}, one a step")
    if not is_steady(count):
        return block_s / count
    first, last = (LEAD - 1) * each, (count - 2) * each + 1
    # The difference of the two means, times `each`, by the places between: seconds per step of one worker.
    return (sum(ends_s[last : last + each]) - sum(ends_s[first : first + each])) / (last - first)
