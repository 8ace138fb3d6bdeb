"""Schedulers, nodes and rollouts for tests of the scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from practicum.executor.scheduling.nodes import Node
from practicum.executor.scheduling.pending import Requirement
from practicum.executor.scheduling.scheduler import Rollout, Scheduler

ANY = Requirement("tool_agent")


def make_scheduler(weights: Mapping[str, float] | None = None) -> Scheduler:
    """Without time or chance: leases are numbered."""
    numbers = count()
    return Scheduler(lease_seconds=30.0, new_lease_id=lambda: f"lease-{next(numbers)}", queue_weights=weights or {})


def make_node(name: str, slots: int = 4, incarnation: str = "a", **labels: str) -> Node:
    """A node that runs tool agents."""
    return Node(name, incarnation, slots, frozenset({"tool_agent"}), frozenset(labels.items()))


def make_rollouts(
    number: int, *, priority: int = 0, prefix: str = "t", queue: str = "default", requirement: Requirement = ANY
) -> list[Rollout]:
    """A group."""
    return [
        Rollout(f"{prefix}/{i}", prefix, requirement, priority=priority, queue=queue, queued_at=float(i))
        for i in range(number)
    ]
