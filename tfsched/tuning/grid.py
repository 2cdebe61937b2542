"""Grid search: the points of a grid over partition and credit, of every policy, in random order; each policy once first."""

from __future__ import annotations

import numpy as np

from .search import ListedSearch
from .space import Space, spaced

POINTS = 6  # of each dimension, from bound to bound


class GridSearch(ListedSearch):
    """The grid in random order: in the order of the values, the best point's place in it would decide, not the search."""

    def __init__(self, space: Space, seed: int = 0, points: int = POINTS):
        grid = space.product(spaced(space.partitions, points), spaced(space.credits, points))
        order = np.random.default_rng(seed).permutation(len(grid))
        drawn = [grid[number] for number in order]
        # A policy that does not look at the credit has few points, and would come late.
        first = list({setting.policy: setting for setting in reversed(drawn)}.values())
        super().__init__([*first, *(setting for setting in drawn if setting not in first)], "of the grid")
