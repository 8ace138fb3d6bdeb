"""What a scheduler must keep true, whatever happens: its rollouts and nodes as they are, beside what it believes."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from unittest import mock

from hypothesis.stateful import RuleBasedStateMachine, invariant

from practicum.executor.scheduling import lines, nodes, pending, timers
from practicum.executor.scheduling.nodes import Node
from practicum.executor.scheduling.pending import Requirement
from practicum.executor.scheduling.scheduler import Lease, Rollout, Scheduler, State

LEASE_SECONDS = 30.0
NODES = "abc"
PLAIN = Requirement("tool_agent")
NEEDS_GPU = Requirement("tool_agent", frozenset({("gpu", "yes")}))
NOBODY_CAN = Requirement("unknown_agent")
OFFERS = {"a": frozenset[tuple[str, str]](), "b": NEEDS_GPU.labels, "c": NEEDS_GPU.labels}
THRESHOLDS = ((lines, "MIN_STALE"), (nodes, "MIN_STALE"), (pending, "MIN_LINES"), (timers, "MIN_ROOM"))
"""So low that what is swept now and then is swept all the time."""
FINAL = {State.DONE, State.CANCELLED, State.DEAD, State.OVERDUE}


@dataclass
class Process:
    """A node as it is, whatever the scheduler believes."""

    incarnation: str = ""
    connected: bool = False
    heard: float = 0.0
    """When it last said something."""
    held: set[str] = field(default_factory=set)
    beside: int = 0


@dataclass
class Stored:
    """What is on disk of a rollout that has not ended."""

    spec: dict[str, object]
    attempt: int = 0
    failures: int = 0
    lease: tuple[str, str, str] | None = None
    """Lease, node, incarnation."""


class Model(RuleBasedStateMachine):
    """A scheduler, and what became of everything it was told and said."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = [mock.patch.object(module, name, 1) for module, name in THRESHOLDS]
        for patch in self.patches:
            patch.start()
        self.lease_ids = count()
        self.now = 0.0
        self.tasks = 0
        self.submitted = 0
        self.incarnations = count()
        self.nodes = {name: Process() for name in NODES}
        self.stored: dict[str, Stored] = {}
        self.ended: dict[str, State] = {}
        self.told: list[tuple[str, str]] = []
        self.attempts: dict[str, int] = {}
        self.scheduler = self.make()

    def make(self) -> Scheduler:
        return Scheduler(LEASE_SECONDS, lambda: f"lease-{next(self.lease_ids)}", queue_weights={"light": 0.5})

    def note(self, rollout: Rollout) -> None:
        """Keeps what the executor would: the end of a rollout, or that it waits again."""
        stored = self.stored[rollout.rollout_id]
        assert rollout.attempt == stored.attempt
        if rollout.state is State.QUEUED:
            assert rollout.failures == stored.failures + 1 < rollout.max_attempts
            stored.failures, stored.lease = rollout.failures, None
            return
        assert rollout.state in FINAL and rollout.rollout_id not in self.ended
        assert (rollout.state is State.DEAD) == (rollout.failures >= rollout.max_attempts)
        assert rollout.state is not State.OVERDUE or not rollout.attempt
        self.ended[rollout.rollout_id] = rollout.state
        del self.stored[rollout.rollout_id]

    def tell(self, lease: Lease, *, arrives: bool) -> None:
        stored = self.stored[lease.rollout_id]
        assert lease.attempt > self.attempts.get(lease.rollout_id, 0)
        self.attempts[lease.rollout_id] = stored.attempt = lease.attempt
        stored.lease = (lease.lease_id, lease.node_id, self.scheduler.nodes[lease.node_id].incarnation)
        self.told.append((lease.lease_id, lease.node_id))
        if arrives:
            self.nodes[lease.node_id].held.add(lease.lease_id)

    def check_choice(self, lease: Lease, loads: dict[str, int]) -> None:
        nodes, requirement = self.scheduler.nodes, self.scheduler.rollouts[lease.rollout_id].requirement

        def load(node: Node) -> float:
            return (loads[node.node_id] + node.foreign) / node.slots

        able = [n for n in nodes.values() if n.connected and not n.draining and n.meets(requirement) and load(n) < 1]
        assert nodes[lease.node_id] in able
        assert load(nodes[lease.node_id]) == min(load(node) for node in able)
        loads[lease.node_id] += 1

    def check_order(self, given: Rollout, left: Rollout) -> None:
        if given.requirement == left.requirement:
            assert given.priority <= left.priority
            if (given.priority, given.queue) == (left.priority, left.queue):
                assert given.ticket < left.ticket

    @invariant()
    def nothing_is_lost_and_nothing_ends_twice(self) -> None:
        rollouts = self.scheduler.rollouts
        assert rollouts.keys() == self.stored.keys()
        assert not self.ended.keys() & rollouts.keys()
        states = [rollout.state for rollout in rollouts.values()]
        assert set(states) <= {State.QUEUED, State.RUNNING}
        assert len(self.scheduler.pending) == states.count(State.QUEUED)
        for task_id in {rollout.task_id for rollout in rollouts.values()}:
            assert self.scheduler.group(task_id) == [i for i, r in rollouts.items() if r.task_id == task_id]

    @invariant()
    def a_lease_is_one_running_rollouts_and_one_nodes(self) -> None:
        leases, nodes = self.scheduler.leases, self.scheduler.nodes
        for lease_id, lease in leases.items():
            rollout = self.scheduler.rollouts[lease.rollout_id]
            assert (rollout.lease_id, rollout.node_id, rollout.attempt) == (lease_id, lease.node_id, lease.attempt)
            assert rollout.state is State.RUNNING and lease_id in nodes[lease.node_id].leases
        assert sum(rollout.lease_id is not None for rollout in self.scheduler.rollouts.values()) == len(leases)
        assert sum(len(node.leases) for node in nodes.values()) == len(leases)

    @invariant()
    def who_is_there_is_known(self) -> None:
        """Who says something is there, until he was not heard for as long as a lease lasts."""
        there = {name for name, process in self.nodes.items() if process.connected}
        assert there == {name for name, node in self.scheduler.nodes.items() if node.connected}

    @invariant()
    def counts_are_what_a_recount_gives(self) -> None:
        for queue in ("default", "light"):
            states = [r.state for r in self.scheduler.rollouts.values() if r.queue == queue]
            counts = self.scheduler.queues.get(queue)
            shown = (counts.queued, counts.running) if counts is not None else (0, 0)
            assert shown == (states.count(State.QUEUED), states.count(State.RUNNING))

    @invariant()
    def nothing_is_due_before_it_is_said_to_be(self) -> None:
        rollouts = self.scheduler.rollouts.values()
        times = [lease.expires_at for lease in self.scheduler.leases.values()]
        times += [r.not_before for r in rollouts if r.delayed]
        times += [r.schedule_by for r in rollouts if r.schedule_by is not None and not r.attempt]
        times += [node.last_seen + LEASE_SECONDS for node in self.scheduler.nodes.values() if node.connected]
        due = self.scheduler.next_due()
        assert not times or (due is not None and due <= min(times))
