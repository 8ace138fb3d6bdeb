"""What the scheduler knows of a rollout, and of the right to run it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from practicum.executor.scheduling.lines import Line


class State(Enum):
    """Where a rollout stands; DONE, CANCELLED, DEAD and OVERDUE are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    DEAD = "dead"
    OVERDUE = "overdue"


class Requirement(NamedTuple):
    """What a node must offer to run a rollout. A tuple, because those hash fast."""

    agent_kind: str
    labels: frozenset[tuple[str, str]] = frozenset()


@dataclass(slots=True, eq=False)
class Rollout:
    """One try at a task, as far as scheduling cares. Submitted once: what is put back later is a new object."""

    rollout_id: str
    task_id: str
    requirement: Requirement
    queue: str = "default"
    priority: int = 0
    max_attempts: int = 3
    """So many failures are one too many."""
    backoff_seconds: float = 0.2
    schedule_by: float | None = None
    """It must have begun by then, or it is OVERDUE."""
    state: State = State.QUEUED
    attempt: int = 0
    """Rises with every lease, and never falls."""
    failures: int = 0
    """Attempts that failed."""
    lease_id: str | None = None
    node_id: str | None = None
    not_before: float = 0.0
    queued_at: float = 0.0
    delayed: bool = field(default=False, init=False)
    """Whether it waits for `not_before`, out of line."""
    ticket: int = field(default=0, init=False, repr=False)
    """Its place in line, for good."""
    line: Line = field(init=False, repr=False)
    """Where it waits, or would wait again."""
    last_lease: Lease | None = field(default=None, init=False, repr=False)
    """The one that ended last."""


@dataclass(slots=True, eq=False)
class Lease:
    """The right of a node to run a rollout's attempt until `expires_at` (seconds of the caller's clock)."""

    lease_id: str
    rollout_id: str
    node_id: str
    attempt: int
    expires_at: float


@dataclass(frozen=True, slots=True)
class Registration:
    """What follows from a node's registration."""

    lost_leases: list[str]
    """Leases that the node believes to hold and does not: it must stop them."""
    given_up: list[Rollout]
    """Rollouts that the node no longer runs: QUEUED again, or DEAD."""
