"""The rollouts of one requirement, and the nodes that may run them."""

from __future__ import annotations

import heapq

from practicum.executor.scheduling.lines import Line
from practicum.executor.scheduling.nodes import Node, Spare
from practicum.executor.scheduling.rollouts import Requirement, Rollout

Rank = tuple[int, float, int]
"""Priority, virtual time of the flow, number of the flow: the smallest is served first."""


class Pool:
    """Lines in the order in which they are served.

    As with nodes, an entry of the heap is never above the line's present rank, since virtual time only rises.
    `awake` is shared by all pools: those in it may have both a rollout that waits and a node with room.
    """

    __slots__ = ("_awake", "_lines", "requirement", "spare")

    def __init__(self, requirement: Requirement, awake: set[Pool]) -> None:
        self.requirement = requirement
        self.spare = Spare()
        self._lines: list[tuple[int, float, int, Line]] = []
        self._awake = awake

    def wake(self, line: Line) -> None:
        """Somebody joined a line."""
        if not line.listed:
            flow = line.flow
            heapq.heappush(self._lines, (flow.priority, flow.time, flow.number, line))
            line.listed = True
        self._awake.add(self)

    def offer(self, node: Node) -> None:
        """A node has room."""
        self.spare.offer(node)
        if self._lines:
            self._awake.add(self)

    def head(self) -> tuple[Rank, Rollout] | None:
        """Who is served next, and how urgent that is."""
        lines = self._lines
        while lines:
            priority, time, number, line = lines[0]
            rollout = line.head() if line.waiting else None
            if rollout is None:
                heapq.heappop(lines)
                line.listed = False
            elif time < line.flow.time:
                heapq.heapreplace(lines, (priority, line.flow.time, number, line))
            else:
                return (priority, time, number), rollout
        return None

    def forget(self) -> None:
        """Drops lines that nobody can come back to."""
        self._lines = [entry for entry in self._lines if entry[3].members]
        heapq.heapify(self._lines)
