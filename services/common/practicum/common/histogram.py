"""Counts of values by size, cheap enough for the hot path: no locks, since one thread observes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""From a commit to a rollout that waits for a node."""


class Histogram:
    """How many values were at most as large as each bound."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        """The sum of all values."""

    def observe(self, value: float) -> None:
        """Counts a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Bounds as text, each with how many values do not exceed it; the last counts all."""
        bounds = [*(repr(float(bound)) for bound in self._bounds), "+Inf"]
        return [(bound, float(count)) for bound, count in zip(bounds, accumulate(self._counts), strict=True)]
