"""Grid search: the points of a grid over partition and credit, of every policy, in random order."""

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
        super().__init__([grid[number] for number in order], "of the grid")
