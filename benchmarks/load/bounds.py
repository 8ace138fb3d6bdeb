"""How fast a set of rollouts can end at best, and how fast it ends when they are taken in their order."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def bound(seconds: Sequence[float], slots: int) -> float:
    """Nobody is faster: the slowest rollout, or all of them spread evenly over the slots."""
    return max(*seconds, sum(seconds) / slots)


def in_order(seconds: Sequence[float], slots: int) -> float:
    """When the last ends if each begins, in this order, as soon as a slot is free."""
    free_at = [0.0] * slots
    for each in seconds:
        heapq.heapreplace(free_at, free_at[0] + each)
    return max(free_at)
