"""Which nodes are there: one that is silent for as long as a lease lasts is not."""

from __future__ import annotations

from practicum.executor.scheduling.leases import Leases
from practicum.executor.scheduling.nodes import Node
from practicum.executor.scheduling.timers import Timers


class Presence:
    """When each node was last heard, and what follows from silence.

    To hear of a node is to write its `last_seen`: that it is silent later now is found when it was to be.
    """

    __slots__ = ("_leases", "_nodes", "_seconds", "_silences")

    def __init__(self, nodes: dict[str, Node], leases: Leases, seconds: float) -> None:
        """A node that is silent for so many seconds has left."""
        self._nodes = nodes
        self._leases = leases
        self._seconds = seconds
        self._silences: Timers[Node] = Timers(lambda node: nodes.get(node.node_id) is node)

    def watch(self, node: Node) -> None:
        """A node that is new."""
        self._silences.add(node.last_seen + self._seconds, node)

    def forget(self, now: float) -> list[Node]:
        """Takes out those that are silent and hold nothing. Returns the silent ones that were still connected."""
        left = []
        for node in self._silences.pop(now):
            if node.last_seen + self._seconds > now:
                self.watch(node)
                continue
            if node.connected:
                node.connected = False
                left.append(node)
            if node.leases:
                self._silences.add(max(self._leases[lease_id].expires_at for lease_id in node.leases), node)
            else:
                del self._nodes[node.node_id]
        return left

    def next_due(self) -> float | None:
        """When the next one may be silent."""
        return self._silences.next_due()
