"""What waits for a node, in order: lower priority value first, then first in, first out."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a node must offer to run a rollout. Rollouts of one requirement share a line."""

    agent_kind: str
    labels: frozenset[tuple[str, str]] = frozenset()


@dataclass(slots=True)
class Pending:
    """One heap for each requirement, so that a rollout no node can run never blocks another's.

    Removal is lazy: an entry counts only while `_tickets` still names it.
    """

    _lines: dict[Requirement, list[tuple[int, int, str]]] = field(default_factory=dict)
    _delayed: list[tuple[float, str]] = field(default_factory=list)
    _tickets: dict[str, int] = field(default_factory=dict)
    _count: Iterator[int] = field(default_factory=count)

    def add(self, rollout_id: str, requirement: Requirement, priority: int) -> None:
        """Puts a rollout at the end of its line."""
        ticket = next(self._count)
        self._tickets[rollout_id] = ticket
        heapq.heappush(self._lines.setdefault(requirement, []), (priority, ticket, rollout_id))

    def delay(self, rollout_id: str, until: float) -> None:
        """Keeps a rollout out of line until a time."""
        self._tickets[rollout_id] = -1
        heapq.heappush(self._delayed, (until, rollout_id))

    def discard(self, rollout_id: str) -> None:
        """Takes a rollout out, wherever it waits."""
        self._tickets.pop(rollout_id, None)

    def due(self, now: float) -> list[str]:
        """Takes out the delayed rollouts whose time has come."""
        ready = []
        while self._delayed and self._delayed[0][0] <= now:
            _, rollout_id = heapq.heappop(self._delayed)
            if self._tickets.get(rollout_id) == -1:
                del self._tickets[rollout_id]
                ready.append(rollout_id)
        return ready

    def next_due(self) -> float | None:
        """When the next delayed rollout may be in line (or would have been, had it not been taken out)."""
        return self._delayed[0][0] if self._delayed else None

    def heads(self) -> list[tuple[Requirement, str]]:
        """The first of each line, the most urgent line first."""
        heads = []
        for requirement, line in list(self._lines.items()):
            while line and self._tickets.get(line[0][2]) != line[0][1]:
                heapq.heappop(line)
            if line:
                heads.append((line[0], requirement))
            else:
                del self._lines[requirement]
        heads.sort(key=lambda head: head[0])
        return [(requirement, entry[2]) for entry, requirement in heads]

    def __len__(self) -> int:
        return len(self._tickets)
