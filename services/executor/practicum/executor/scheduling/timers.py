"""What is to be looked at when its time comes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")

MIN_ROOM = 64


class Timers(Generic[T]):
    """A heap of times. Nothing is taken out early: what no longer counts is dropped when it is met.

    The heap is swept when it has doubled since the last sweep, so it stays within twice what counts.
    """

    __slots__ = ("_counts", "_heap", "_numbers", "_room")

    def __init__(self, counts: Callable[[T], bool]) -> None:
        self._counts = counts
        self._heap: list[tuple[float, int, T]] = []
        self._numbers: Iterator[int] = count()
        self._room = MIN_ROOM

    def add(self, due: float, item: T) -> None:
        """Has an item looked at when its time comes."""
        heapq.heappush(self._heap, (due, next(self._numbers), item))
        if len(self._heap) > self._room:
            self._sweep()

    def pop(self, now: float) -> list[T]:
        """Takes out what is due, the earliest first."""
        heap, due = self._heap, []
        while heap and heap[0][0] <= now:
            item = heapq.heappop(heap)[2]
            if self._counts(item):
                due.append(item)
        return due

    def next_due(self) -> float | None:
        """When the next item is due."""
        heap = self._heap
        while heap and not self._counts(heap[0][2]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def __len__(self) -> int:
        """Entries, those included that no longer count."""
        return len(self._heap)

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if self._counts(entry[2])]
        heapq.heapify(self._heap)
        self._room = 2 * len(self._heap) + MIN_ROOM
