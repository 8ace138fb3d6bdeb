"""Decides who runs what, as a pure state machine: no clock, no disk, no network.

Callers tell it what happened and when; it answers with what follows. The store makes those answers
durable and the services carry them out, so every interleaving can be tested without a process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from practicum.executor.scheduling.backoff import Jitter, delay_seconds, no_jitter
from practicum.executor.scheduling.groups import Groups
from practicum.executor.scheduling.leases import Leases
from practicum.executor.scheduling.nodes import Node, absent
from practicum.executor.scheduling.pending import Pending
from practicum.executor.scheduling.presence import Presence
from practicum.executor.scheduling.rollouts import Lease, Registration, Rollout, State
from practicum.executor.scheduling.shares import QueueCounts, check_weights
from practicum.executor.scheduling.timers import Timers

__all__ = ["Lease", "QueueCounts", "Registration", "Rollout", "Scheduler", "State"]


@dataclass(slots=True)
class Scheduler:
    """All rollouts that have not ended, the nodes, and the leases between them."""

    lease_seconds: float
    new_lease_id: Callable[[], str]
    queue_weights: Mapping[str, float] = field(default_factory=dict)
    """The shares of queues; 1 for those that are not named."""
    jitter: Jitter = no_jitter
    rollouts: dict[str, Rollout] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    leases: Leases = field(default_factory=Leases)
    pending: Pending = field(init=False)
    _groups: Groups = field(default_factory=Groups)
    _turns: Iterator[int] = field(default_factory=lambda: count(1))
    _schedule_by: Timers[Rollout] = field(init=False)
    _presence: Presence = field(init=False)

    def __post_init__(self) -> None:
        check_weights(self.queue_weights)
        self.pending = Pending(self.queue_weights, self.nodes)
        self._schedule_by = Timers(never_began)
        self._presence = Presence(self.nodes, self.leases, self.lease_seconds)

    @property
    def queues(self) -> dict[str, QueueCounts]:
        """What waits and runs, by queue."""
        return self.pending.queues

    def oldest(self, queue: str) -> float | None:
        """`queued_at` of the rollout that has stood in line longest; None when none does."""
        return self.pending.oldest(queue)

    def group(self, task_id: str) -> list[str]:
        """The rollouts of a task that have not ended."""
        return self._groups.open(task_id)

    def stragglers(self, task_id: str, *, usable: int, after_usable: int) -> list[str]:
        """The rollouts to cut off, when so many of their group ended usable; 0 for `after_usable`: none ever."""
        return self._groups.stragglers(task_id, usable=usable, after_usable=after_usable)

    def submit(self, rollouts: Iterable[Rollout]) -> None:
        """Takes rollouts on, in their order."""
        for rollout in rollouts:
            self._take_on(rollout)
            self.pending.add(rollout)
            if rollout.schedule_by is not None and never_began(rollout):
                self._schedule_by.add(rollout.schedule_by, rollout)

    def restore(self, rollout: Rollout, lease: Lease, incarnation: str) -> None:
        """After a restart: a rollout that a node may still run. Unless the node comes back, the lease expires."""
        node = self.nodes.get(lease.node_id)
        if node is None:
            node = self.nodes[lease.node_id] = absent(lease.node_id, incarnation)
            node.last_seen = lease.expires_at - self.lease_seconds
            self._presence.watch(node)
        if node.incarnation != incarnation:
            self.submit([rollout])
            return
        self._take_on(rollout)
        self.pending.adopt(rollout)
        self._grant(rollout, node, lease)

    def register(self, node: Node, held_leases: Iterable[str], now: float) -> Registration:
        """A node dialled in: what it still holds is renewed, what it lost goes back in line."""
        known, held = self.nodes.get(node.node_id), set(held_leases)
        kept: set[str] = set()
        given_up: list[Rollout] = []
        if known is not None:
            if known.incarnation == node.incarnation:
                kept = held & known.leases
                node.finished, node.turn = known.finished, known.turn
                node.draining, node.foreign = known.draining, known.foreign
            known.connected = False
            given_up = [self._give_up(self.leases[lease_id], now) for lease_id in sorted(known.leases - kept)]
        node.leases, node.last_seen, node.number = kept, now, next(self._turns)
        self.nodes[node.node_id] = node
        for lease_id in kept:
            self.leases[lease_id].expires_at = now + self.lease_seconds
        self._presence.watch(node)
        self.pending.admit(node)
        return Registration(lost_leases=sorted(held - kept), given_up=given_up)

    def heartbeat(self, node_id: str, lease_ids: Iterable[str], now: float, *, reported: int = 0) -> list[str]:
        """Renews the leases that a node lists. Returns those that are not its own any more.

        `reported` is (running + queued) as the node counts them. What exceeds the leases that it lists in the same
        breath runs beside them. A lease that it does not list may be on its way to it, and counts anyway.
        """
        node = self.nodes[node_id]
        lost, listed, expires_at = [], 0, now + self.lease_seconds
        for lease_id in lease_ids:
            listed += 1
            if lease_id in node.leases:
                self.leases[lease_id].expires_at = expires_at
            else:
                lost.append(lease_id)
        node.last_seen, before, node.foreign = now, node.foreign, max(reported - listed, 0)
        if node.foreign < before:
            self.pending.offer(node)
        return lost

    def drain(self, node_id: str, *, draining: bool = True) -> None:
        """Has a node be given nothing new, or again something."""
        node = self.nodes[node_id]
        node.draining = draining
        self.pending.offer(node)

    def disconnect(self, node_id: str, incarnation: str) -> None:
        """A node's stream broke: it is given nothing until it is back. Its leases stand until they expire."""
        node = self.nodes.get(node_id)
        if node is not None and node.incarnation == incarnation and node.connected:
            node.connected = False

    def hear(self, node_id: str, now: float) -> None:
        """A connected node said something."""
        self.nodes[node_id].last_seen = now

    def forget_absent(self, now: float) -> list[Node]:
        """Forgets nodes that hold nothing and were not heard for as long as a lease lasts.

        Returns those that were still connected. They are no longer, whatever they hold: a node that is silent loses
        what it has, so it would be the least loaded and be given what others can run.
        """
        return self._presence.forget(now)

    def dispatch(self, now: float) -> list[Lease]:
        """Gives waiting rollouts to nodes with room: the first in line to the least-loaded eligible one."""
        given: list[Lease] = []
        pending = self.pending
        pending.due(now)
        while (match := pending.next_match()) is not None:
            given.append(self._assign(*match, now))
        return given

    def finish(self, lease_id: str, node_id: str) -> Rollout | None:
        """A node ended a rollout. Returns it when the lease still stands; None: the result is refused."""
        lease = self.leases.get(lease_id)
        if lease is None or lease.node_id != node_id:
            return None
        rollout = self._release(lease)
        self.nodes[node_id].finished += 1
        return self._end_running(rollout, State.DONE)

    def fail(self, lease_id: str, node_id: str, now: float) -> Rollout | None:
        """A node met an infrastructure error. Returns the rollout: QUEUED for its next attempt, or DEAD."""
        lease = self.leases.get(lease_id)
        if lease is None or lease.node_id != node_id:
            return None
        return self._give_up(lease, now)

    def cancel(self, rollout_id: str) -> Rollout | None:
        """Cancels a rollout that has not ended. Its lease, if any, is gone: a late result is refused."""
        rollout = self.rollouts.get(rollout_id)
        if rollout is None:
            return None
        if rollout.lease_id is None:
            return self._end_waiting(rollout, State.CANCELLED)
        return self._end_running(self._release(self.leases[rollout.lease_id]), State.CANCELLED)

    def expire(self, now: float) -> list[Rollout]:
        """Gives up leases that were not renewed in time. Returns their rollouts: QUEUED again, or DEAD."""
        return [self._give_up(lease, now) for lease in self.leases.late(now)]

    def overdue(self, now: float) -> list[Rollout]:
        """Ends rollouts that never began in time. Call it before `dispatch`, which does not ask."""
        return [self._end_waiting(rollout, State.OVERDUE) for rollout in self._schedule_by.pop(now)]

    def next_due(self) -> float | None:
        """When something may be due next, though nothing happens: a retry, a deadline, the end of a lease."""
        timers = (self.leases, self._schedule_by, self._presence, self.pending)
        return min((due for timer in timers if (due := timer.next_due()) is not None), default=None)

    def _take_on(self, rollout: Rollout) -> None:
        if rollout.rollout_id in self.rollouts:
            raise ValueError(f"rollout {rollout.rollout_id} was submitted before")
        self.rollouts[rollout.rollout_id] = rollout
        self._groups.add(rollout)

    def _assign(self, rollout: Rollout, node: Node, now: float) -> Lease:
        self.pending.serve(rollout)
        rollout.attempt += 1
        lease = Lease(self.new_lease_id(), rollout.rollout_id, node.node_id, rollout.attempt, now + self.lease_seconds)
        self._grant(rollout, node, lease)
        return lease

    def _grant(self, rollout: Rollout, node: Node, lease: Lease) -> None:
        rollout.state, rollout.lease_id, rollout.node_id = State.RUNNING, lease.lease_id, node.node_id
        self.leases.grant(lease)
        node.leases.add(lease.lease_id)
        node.turn = next(self._turns)

    def _release(self, lease: Lease) -> Rollout:
        del self.leases[lease.lease_id]
        node = self.nodes[lease.node_id]
        node.leases.discard(lease.lease_id)
        self.pending.offer(node)
        rollout = self.rollouts[lease.rollout_id]
        rollout.lease_id, rollout.last_lease = None, lease
        return rollout

    def _give_up(self, lease: Lease, now: float) -> Rollout:
        rollout = self._release(lease)
        rollout.failures += 1
        if rollout.failures >= rollout.max_attempts:
            return self._end_running(rollout, State.DEAD)
        rollout.state, rollout.node_id = State.QUEUED, None
        self.pending.delay(rollout, now + delay_seconds(rollout.backoff_seconds, rollout.failures, self.jitter))
        return rollout

    def _end_running(self, rollout: Rollout, state: State) -> Rollout:
        self.pending.ended_running(rollout)
        return self._end(rollout, state)

    def _end_waiting(self, rollout: Rollout, state: State) -> Rollout:
        rollout.state = state
        self.pending.ended_waiting(rollout)
        return self._end(rollout, state)

    def _end(self, rollout: Rollout, state: State) -> Rollout:
        rollout.state = state
        del self.rollouts[rollout.rollout_id]
        self._groups.remove(rollout)
        return rollout


def never_began(rollout: Rollout) -> bool:
    """Whether a rollout waits for its first attempt."""
    return rollout.state is State.QUEUED and not rollout.attempt
