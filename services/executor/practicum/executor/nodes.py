"""The nodes as the scheduler sees them, and which of them is the least loaded."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from practicum.executor.rollouts import Requirement

if TYPE_CHECKING:
    from practicum.executor.pools import Pool

MIN_STALE = 64


@dataclass(slots=True, eq=False)
class Node:
    """A node that dialled in."""

    node_id: str
    incarnation: str
    slots: int
    agent_kinds: frozenset[str]
    labels: frozenset[tuple[str, str]] = frozenset()
    connected: bool = True
    draining: bool = False
    leases: set[str] = field(default_factory=set)
    foreign: int = 0
    """What it runs beside its leases, by its last heartbeat."""
    turn: int = 0
    """When it was last given something, in turns."""
    number: int = field(default=0, init=False)
    """In the order of registrations."""
    finished: int = 0
    last_seen: float = 0.0
    pools: list[Pool] = field(default_factory=list, init=False, repr=False)
    """Where it is looked for."""

    @property
    def load(self) -> float:
        """(running + queued) / slots: its leases, and what it runs beside them."""
        return (len(self.leases) + self.foreign) / self.slots

    @property
    def has_room(self) -> bool:
        """Whether it may be given something now."""
        return self.connected and not self.draining and len(self.leases) + self.foreign < self.slots

    def meets(self, requirement: Requirement) -> bool:
        """Whether it can run such rollouts at all."""
        return requirement.agent_kind in self.agent_kinds and requirement.labels <= self.labels


class Spare:
    """Nodes with room, the least loaded first; among equals the one that waited longest.

    A heap in which every node with room has an entry that is not above its present (load, turn). A node whose load fell
    is offered anew; an entry whose node's load rose is corrected when it is met. So a change costs O(log n).
    """

    __slots__ = ("_heap", "_room")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, Node]] = []
        self._room = MIN_STALE

    def offer(self, node: Node) -> None:
        """A node came, or its load fell."""
        heapq.heappush(self._heap, (node.load, node.turn, node.number, node))
        if len(self._heap) > self._room:
            self._sweep()

    def best(self) -> Node | None:
        """The node to give something to."""
        heap = self._heap
        while heap:
            load, turn, number, node = heap[0]
            if not node.has_room:
                heapq.heappop(heap)
                continue
            present = node.load
            if load == present and turn == node.turn:
                return node
            if (load, turn) < (present, node.turn):
                heapq.heapreplace(heap, (present, node.turn, number, node))
            else:
                heapq.heappop(heap)
        return None

    def _sweep(self) -> None:
        nodes = {node for *_, node in self._heap if node.has_room}
        self._heap = [(node.load, node.turn, node.number, node) for node in nodes]
        heapq.heapify(self._heap)
        self._room = 2 * len(self._heap) + MIN_STALE
