"""A line of rollouts that any of the same nodes may run: first in, first out."""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING

from practicum.executor.scheduling.rollouts import Rollout, State
from practicum.executor.scheduling.shares import Flow

if TYPE_CHECKING:
    from practicum.executor.scheduling.pools import Pool

QUEUED = State.QUEUED
MIN_STALE = 64


class Line:
    """Rollouts of one requirement, queue and priority.

    Those that wait for the first time stand in order as they come. Those that are tried again go back to their old
    places, which only the heap beside finds. Who leaves early is skipped when his turn comes.
    """

    __slots__ = ("_again", "_first", "flow", "listed", "members", "pool", "waiting")

    def __init__(self, pool: Pool, flow: Flow) -> None:
        self.pool = pool
        self.flow = flow
        self.listed = False
        """Whether its pool looks at it."""
        self.members = 0
        """Rollouts that have not ended, wherever they are."""
        self.waiting = 0
        self._first: deque[Rollout] = deque()
        self._again: list[tuple[int, Rollout]] = []

    def join(self, rollout: Rollout) -> None:
        """At the end."""
        self._first.append(rollout)
        self._joined()

    def rejoin(self, rollout: Rollout) -> None:
        """At its old place."""
        heapq.heappush(self._again, (rollout.ticket, rollout))
        self._joined()

    def head(self) -> Rollout | None:
        """Whose turn it is."""
        first, again = self._first, self._again
        while first and first[0].state is not QUEUED:
            first.popleft()
        while again and again[0][1].state is not QUEUED:
            heapq.heappop(again)
        if again and not (first and first[0].ticket < again[0][0]):
            return again[0][1]
        return first[0] if first else None

    def serve(self, head: Rollout) -> None:
        """The head gets a node."""
        if self._first and self._first[0] is head:
            self._first.popleft()
        else:
            heapq.heappop(self._again)
        self.waiting -= 1
        self.flow.charge()
        self.flow.leave()

    def leave(self) -> None:
        """Somebody, whose state is no longer QUEUED, waits no longer."""
        self.waiting -= 1
        self.flow.leave()
        if len(self._first) + len(self._again) > 2 * self.waiting + MIN_STALE:
            self._first = deque(r for r in self._first if r.state is QUEUED)
            self._again = [entry for entry in self._again if entry[1].state is QUEUED]
            heapq.heapify(self._again)

    def _joined(self) -> None:
        self.waiting += 1
        self.flow.join()
        self.pool.wake(self)
