"""Random search: each policy is as likely as any other to be next, and of a policy each setting."""

from __future__ import annotations

import numpy as np

from .search import ListedSearch
from .space import Setting, Space


class RandomSearch(ListedSearch):
    """All settings of the space in random order. A policy of few settings is not drawn less often than one of many."""

    def __init__(self, space: Space, seed: int = 0):
        random = np.random.default_rng(seed)
        left: dict[str, list[Setting]] = {policy: [] for policy in space.policies}
        for number in random.permutation(len(space.settings)):
            left[space.settings[number].policy].append(space.settings[number])
        order = []
        while left:
            policy = tuple(left)[int(random.integers(len(left)))]
            order.append(left[policy].pop())
            if not left[policy]:
                del left[policy]
        super().__init__(order, "drawn at random")
