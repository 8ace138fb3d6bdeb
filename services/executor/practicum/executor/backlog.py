"""The tasks behind the rollouts that have not ended, and what was counted of each queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from practicum.executor.pending import Requirement
from practicum.executor.scheduler import Lease, Rollout, Scheduler, State
from practicum.executor.store import StoredRollout
from practicum.v1 import task_pb2

DEFAULT_ATTEMPTS = 3
DEFAULT_BACKOFF_SECONDS = 0.2


@dataclass(slots=True)
class Counts:
    """What ended in a queue since the executor started."""

    done: int = 0
    cancelled: int = 0
    dead: int = 0
    retried: int = 0


@dataclass(slots=True)
class Backlog:
    """Open tasks by id; a task leaves when its last rollout ends."""

    tasks: dict[str, task_pb2.Task] = field(default_factory=dict)
    open_rollouts: dict[str, int] = field(default_factory=dict)
    queues: dict[str, Counts] = field(default_factory=dict)

    def add(self, task: task_pb2.Task, rollouts: int) -> None:
        """A task with so many rollouts to come."""
        self.tasks[task.id] = task
        self.open_rollouts[task.id] = rollouts
        self.queues.setdefault(queue_of(task), Counts())

    def count(self, rollout: Rollout) -> None:
        """A rollout ended, or an attempt of it failed (its state is QUEUED again)."""
        counts = self.queues[queue_of(self.tasks[rollout.task_id])]
        match rollout.state:
            case State.DONE:
                counts.done += 1
            case State.CANCELLED:
                counts.cancelled += 1
            case State.DEAD:
                counts.dead += 1
            case _:
                counts.retried += 1
                return
        self.open_rollouts[rollout.task_id] -= 1
        if not self.open_rollouts[rollout.task_id]:
            del self.tasks[rollout.task_id], self.open_rollouts[rollout.task_id]


def queue_of(task: task_pb2.Task) -> str:
    """The queue a task waits in."""
    return task.queue or "default"


def rollout_ids(task: task_pb2.Task) -> list[str]:
    """The ids of a task's rollouts."""
    return [f"{task.id}/{index}" for index in range(task.rollouts or 1)]


def make_rollouts(task: task_pb2.Task, ids: Iterable[str], *, now: float) -> list[Rollout]:
    """A task's rollouts as the scheduler sees them."""
    requirement = Requirement(task.agent.kind, frozenset(task.required_node_labels.items()))
    backoff = task.retry.initial_backoff.ToTimedelta().total_seconds() or DEFAULT_BACKOFF_SECONDS
    attempts = task.retry.max_attempts or DEFAULT_ATTEMPTS
    return [
        Rollout(
            rollout_id,
            task.id,
            requirement,
            priority=task.priority,
            max_attempts=attempts,
            backoff_seconds=backoff,
            queued_at=now,
        )
        for rollout_id in ids
    ]


def recover(backlog: Backlog, scheduler: Scheduler, stored: Sequence[StoredRollout], *, now: float) -> None:
    """After a restart: what waited waits again, and what nodes ran stays theirs for as long as a lease lasts."""
    of_task: dict[str, list[StoredRollout]] = {}
    for row in stored:
        of_task.setdefault(row.task_id, []).append(row)
    for rows in of_task.values():
        task = task_pb2.Task.FromString(rows[0].task)
        backlog.add(task, len(rows))
        for row, rollout in zip(rows, make_rollouts(task, (r.rollout_id for r in rows), now=now), strict=True):
            rollout.attempt = row.attempt
            if row.lease_id:
                expires_at = now + scheduler.lease_seconds
                lease = Lease(row.lease_id, row.rollout_id, row.node_id, row.attempt, expires_at)
                scheduler.restore(rollout, lease, row.incarnation)
            else:
                scheduler.submit([rollout])
