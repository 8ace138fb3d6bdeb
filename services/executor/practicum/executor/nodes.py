"""The nodes as the scheduler sees them, and which of them is the least loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from practicum.executor.pending import Requirement


@dataclass(slots=True)
class Node:
    """A node that dialled in. `reported` is (running + queued) by its last heartbeat."""

    node_id: str
    incarnation: str
    slots: int
    agent_kinds: frozenset[str]
    labels: frozenset[tuple[str, str]] = frozenset()
    connected: bool = True
    draining: bool = False
    reported: int = 0
    leases: set[str] = field(default_factory=set)
    turn: int = 0
    finished: int = 0
    last_seen: float = 0.0

    @property
    def load(self) -> float:
        """(running + queued) / slots, by what was assigned or what was reported, whichever is higher."""
        return max(len(self.leases), self.reported) / self.slots

    def takes(self, requirement: Requirement) -> bool:
        """Whether it may be given such a rollout now."""
        return (
            self.connected
            and not self.draining
            and len(self.leases) < self.slots
            and requirement.agent_kind in self.agent_kinds
            and requirement.labels <= self.labels
        )


def least_loaded(nodes: Iterable[Node], requirement: Requirement) -> Node | None:
    """The eligible node with the smallest load; among equals the one that waited longest."""
    eligible = [node for node in nodes if node.takes(requirement)]
    return min(eligible, key=lambda node: (node.load, node.turn), default=None)
