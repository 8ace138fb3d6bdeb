"""Decides who runs what, as a pure state machine: no clock, no disk, no network.

Callers tell it what happened and when; it answers with what follows. The store makes those answers
durable and the services carry them out, so every interleaving can be tested without a process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import count

from practicum.executor.nodes import Node, least_loaded
from practicum.executor.pending import Pending, Requirement


class State(Enum):
    """Where a rollout stands; DONE, CANCELLED and DEAD are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    DEAD = "dead"


@dataclass(slots=True)
class Rollout:
    """One try at a task, as far as scheduling cares."""

    rollout_id: str
    task_id: str
    requirement: Requirement
    queue: str = "default"
    priority: int = 0
    schedule_by: float | None = None
    failures: int = 0
    max_attempts: int = 3
    backoff_seconds: float = 0.2
    state: State = State.QUEUED
    attempt: int = 0
    lease_id: str | None = None
    node_id: str | None = None
    not_before: float = 0.0
    queued_at: float = 0.0


@dataclass(slots=True)
class QueueCounts:
    queued: int = 0
    running: int = 0


@dataclass(frozen=True, slots=True)
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


@dataclass(slots=True)
class Scheduler:
    """All rollouts that have not ended, the nodes, and the leases between them."""

    lease_seconds: float
    new_lease_id: Callable[[], str]
    rollouts: dict[str, Rollout] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    queue_weights: Mapping[str, float] = field(default_factory=dict)
    pending: Pending = field(default_factory=Pending)
    _turns: Iterator[int] = field(default_factory=lambda: count(1))

    def submit(self, rollouts: Iterable[Rollout]) -> None:
        """Takes rollouts on, in their order."""
        for rollout in rollouts:
            if rollout.rollout_id in self.rollouts:
                raise ValueError(f"rollout {rollout.rollout_id} was submitted before")
            self.rollouts[rollout.rollout_id] = rollout
            self._enqueue(rollout)

    def restore(self, rollout: Rollout, lease: Lease, incarnation: str) -> None:
        """After a restart: a rollout that a node may still run. Unless the node comes back, the lease expires."""
        node = self.nodes.setdefault(lease.node_id, absent(lease.node_id, incarnation))
        if node.incarnation != incarnation:
            self.submit([rollout])
            return
        self.rollouts[rollout.rollout_id] = rollout
        self.leases[lease.lease_id] = lease
        rollout.state, rollout.lease_id, rollout.node_id = State.RUNNING, lease.lease_id, lease.node_id
        node.leases.add(lease.lease_id)

    def register(self, node: Node, held_leases: Iterable[str], now: float) -> Registration:
        """A node dialled in: what it still holds is renewed, what it lost goes back in line."""
        known = self.nodes.get(node.node_id)
        held = set(held_leases)
        kept = {lease for lease in held if known is not None and lease in known.leases}
        if known is not None and known.incarnation != node.incarnation:
            kept = set()
        dropped = sorted(known.leases - kept) if known is not None else []
        given_up = [self._give_up(lease_id, now) for lease_id in dropped]
        node.leases = kept
        node.last_seen = now
        if known is not None and known.incarnation == node.incarnation:
            node.finished, node.turn, node.draining = known.finished, known.turn, known.draining
        self.nodes[node.node_id] = node
        for lease_id in kept:
            self._renew(lease_id, now)
        return Registration(lost_leases=sorted(held - kept), given_up=given_up)

    def heartbeat(self, node_id: str, lease_ids: Iterable[str], now: float, *, reported: int = 0) -> list[str]:
        """Renews the leases that a node lists. Returns those that are not its own any more.

        `reported` is (running + queued) as the node counts them.
        """
        node = self.nodes[node_id]
        node.last_seen, node.reported = now, reported
        lost = []
        for lease_id in lease_ids:
            if lease_id in node.leases:
                self._renew(lease_id, now)
            else:
                lost.append(lease_id)
        return lost

    def disconnect(self, node_id: str, incarnation: str) -> None:
        """A node's stream broke: it is given nothing until it is back. Its leases stand until they expire."""
        node = self.nodes.get(node_id)
        if node is not None and node.incarnation == incarnation:
            node.connected = False

    def forget_absent(self, now: float) -> None:
        """Drops nodes that hold nothing and were not seen for as long as a lease lasts."""
        for node in list(self.nodes.values()):
            if not node.connected and not node.leases and node.last_seen + self.lease_seconds <= now:
                del self.nodes[node.node_id]

    def dispatch(self, now: float) -> list[Lease]:
        """Gives waiting rollouts to nodes with a free slot: the first in line to the least-loaded eligible one."""
        given: list[Lease] = []
        for rollout_id in self.pending.due(now):
            self._enqueue(self.rollouts[rollout_id])
        while (chosen := self._next_match()) is not None:
            rollout, node = chosen
            given.append(self._assign(rollout, node, now))
        return given

    def finish(self, lease_id: str, node_id: str) -> Rollout | None:
        """A node ended a rollout. Returns it when the lease still stands; None: the result is refused."""
        lease = self.leases.get(lease_id)
        if lease is None or lease.node_id != node_id:
            return None
        rollout = self._release(lease)
        self.nodes[node_id].finished += 1
        rollout.state = State.DONE
        del self.rollouts[rollout.rollout_id]
        return rollout

    def fail(self, lease_id: str, node_id: str, now: float) -> Rollout | None:
        """A node met an infrastructure error. Returns the rollout: QUEUED for its next attempt, or DEAD."""
        lease = self.leases.get(lease_id)
        if lease is None or lease.node_id != node_id:
            return None
        return self._give_up(lease_id, now)

    def cancel(self, rollout_id: str) -> Rollout | None:
        """Cancels a rollout that has not ended. Its lease, if any, is gone: a late result is refused."""
        rollout = self.rollouts.get(rollout_id)
        if rollout is None:
            return None
        if rollout.lease_id is not None:
            self._release(self.leases[rollout.lease_id])
        del self.rollouts[rollout_id]
        self.pending.discard(rollout_id)
        rollout.state = State.CANCELLED
        return rollout

    def expire(self, now: float) -> list[Rollout]:
        """Gives up leases that were not renewed in time. Returns their rollouts: QUEUED again, or DEAD."""
        late = [lease.lease_id for lease in self.leases.values() if lease.expires_at <= now]
        return [self._give_up(lease_id, now) for lease_id in late]

    def overdue(self, now: float) -> list[Rollout]:
        return []

    def next_due(self) -> float | None:
        due = [lease.expires_at for lease in self.leases.values()]
        if (d := self.pending.next_due()) is not None:
            due.append(d)
        return min(due, default=None)

    @property
    def queues(self) -> dict[str, QueueCounts]:
        counts: dict[str, QueueCounts] = {}
        for r in self.rollouts.values():
            c = counts.setdefault(r.queue, QueueCounts())
            if r.state is State.RUNNING:
                c.running += 1
            else:
                c.queued += 1
        return counts

    def oldest(self, queue: str) -> float | None:
        return min((r.queued_at for r in self.rollouts.values() if r.queue == queue and r.state is State.QUEUED), default=None)

    def _next_match(self) -> tuple[Rollout, Node] | None:
        for requirement, rollout_id in self.pending.heads():
            node = least_loaded(self.nodes.values(), requirement)
            if node is not None:
                return self.rollouts[rollout_id], node
        return None

    def _assign(self, rollout: Rollout, node: Node, now: float) -> Lease:
        self.pending.discard(rollout.rollout_id)
        rollout.attempt += 1
        lease = Lease(self.new_lease_id(), rollout.rollout_id, node.node_id, rollout.attempt, now + self.lease_seconds)
        rollout.state, rollout.lease_id, rollout.node_id = State.RUNNING, lease.lease_id, node.node_id
        self.leases[lease.lease_id] = lease
        node.leases.add(lease.lease_id)
        node.turn = next(self._turns)
        return lease

    def _renew(self, lease_id: str, now: float) -> None:
        old = self.leases[lease_id]
        expires_at = now + self.lease_seconds
        self.leases[lease_id] = Lease(lease_id, old.rollout_id, old.node_id, old.attempt, expires_at)

    def _release(self, lease: Lease) -> Rollout:
        del self.leases[lease.lease_id]
        self.nodes[lease.node_id].leases.discard(lease.lease_id)
        rollout = self.rollouts[lease.rollout_id]
        rollout.lease_id = None
        return rollout

    def _give_up(self, lease_id: str, now: float) -> Rollout:
        rollout = self._release(self.leases[lease_id])
        if rollout.attempt >= rollout.max_attempts:
            rollout.state = State.DEAD
            del self.rollouts[rollout.rollout_id]
            return rollout
        rollout.state, rollout.node_id = State.QUEUED, None
        rollout.not_before = now + rollout.backoff_seconds * 2 ** (rollout.attempt - 1)
        self.pending.delay(rollout.rollout_id, rollout.not_before)
        return rollout

    def _enqueue(self, rollout: Rollout) -> None:
        self.pending.add(rollout.rollout_id, rollout.requirement, rollout.priority)


def absent(node_id: str, incarnation: str) -> Node:
    """A node that has not dialled in since the restart."""
    return Node(node_id, incarnation, slots=1, agent_kinds=frozenset(), connected=False)
