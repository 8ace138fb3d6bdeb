"""The nodes as the scheduler sees them, and which of them is the least loaded."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from practicum.executor.scheduling.rollouts import Requirement

if TYPE_CHECKING:
    from practicum.executor.scheduling.pools import Pool

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


Entry = tuple[float, int, int, Node]
"""Load, turn, number, node: the smallest is served next."""


class Spare:
    """Nodes with room, the least loaded first; among equals the one that waited longest.

    A heap in which every node with room has one entry that counts and is not above its present (load, turn). A load
    that rose is corrected when its entry is met, so that a change costs O(log n) and often nothing.
    """

    __slots__ = ("_counting", "_heap", "_room")

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._counting: dict[Node, Entry] = {}
        self._room = MIN_STALE

    def offer(self, node: Node) -> None:
        """A node with room came, or its load fell."""
        entry = (len(node.leases) + node.foreign) / node.slots, node.turn, node.number, node
        present = self._counting.get(node)
        if present is None or entry < present:
            self._counting[node] = entry
            heapq.heappush(self._heap, entry)
            if len(self._heap) > self._room:
                self._sweep()

    def best(self) -> Node | None:
        """The node to give something to."""
        heap, counting = self._heap, self._counting
        while heap:
            entry = heap[0]
            load, turn, number, node = entry
            if counting.get(node) is not entry:
                heapq.heappop(heap)
            elif not node.has_room:
                heapq.heappop(heap)
                del counting[node]
            elif turn != node.turn or load != node.load:
                counting[node] = entry = (node.load, node.turn, number, node)
                heapq.heapreplace(heap, entry)
            else:
                return node
        return None

    def _sweep(self) -> None:
        self._counting = {node: entry for node, entry in self._counting.items() if node.has_room}
        self._heap = list(self._counting.values())
        heapq.heapify(self._heap)
        self._room = 2 * len(self._heap) + MIN_STALE


def absent(node_id: str, incarnation: str) -> Node:
    """A node that has not dialled in since the restart."""
    return Node(node_id, incarnation, slots=1, agent_kinds=frozenset(), connected=False)
