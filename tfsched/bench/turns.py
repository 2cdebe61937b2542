"""Who follows whom: the order in which settings and bounds take turns."""

from __future__ import annotations


def turns(count: int, number: int) -> list[int]:
    """The order of ``count`` treatments in round ``number``, balanced for what a turn leaves behind for the next.

    Mere rotation would have each always follow the same neighbour, but for the first of a round. Here, over ``count``
    rounds (twice that if it is odd) each has every place, and follows every other, equally often: Williams,
    "Experimental designs balanced for the estimation of residual effects of treatments", 1949.
    """
    # 0, 1, -1, 2, -2, ...: all differences between neighbours are different.
    zigzag = [(place + 1) // 2 * (1 if place % 2 else -1) for place in range(count)]
    order = [(step + number) % count for step in zigzag]
    return order[::-1] if count % 2 and number // count % 2 else order
