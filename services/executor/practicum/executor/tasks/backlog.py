"""The tasks behind the rollouts that have not ended, and what was counted of each queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from google.protobuf.duration_pb2 import Duration

from practicum.executor.scheduling.pending import Requirement
from practicum.executor.scheduling.scheduler import Lease, Rollout, Scheduler, State
from practicum.executor.store.rows import AttemptRow
from practicum.executor.store.stored import StoredTask
from practicum.v1 import task_pb2, trajectory_pb2

NO_LABELS: frozenset[tuple[str, str]] = frozenset()
DEFAULT_ATTEMPTS = 3
DEFAULT_BACKOFF_SECONDS = 0.2
USABLE = frozenset(
    (trajectory_pb2.OUTCOME_FINISHED, trajectory_pb2.OUTCOME_MAX_STEPS, trajectory_pb2.OUTCOME_AGENT_ERROR)
)
"""Outcomes that a trainer learns from."""


@dataclass(slots=True)
class Counts:
    """What ended in a queue since the executor started."""

    done: int = 0
    cancelled: int = 0
    dead: int = 0
    retried: int = 0


@dataclass(slots=True)
class OpenTask:
    """A task with rollouts that have not ended; kept serialized, which takes the least memory."""

    number: int
    task_id: str
    queue: str
    labels: Mapping[str, str]
    traceparent: str
    rollouts: int
    body: bytes
    open: int
    cutoff: int = 0
    """So many usable rollouts are enough; 0: all are wanted."""
    usable: int = 0
    kept: asyncio.Future[None] | None = None
    """Until the task is on disk: who repeats the submit waits for this as well."""

    @property
    def task(self) -> task_pb2.Task:
        """The task itself."""
        return task_pb2.Task.FromString(self.body)


@dataclass(slots=True)
class Backlog:
    """Open tasks by id. A task leaves when its last rollout's end is on disk."""

    tasks: dict[str, OpenTask] = field(default_factory=dict)
    queues: dict[str, Counts] = field(default_factory=dict)

    def add(self, task: OpenTask) -> None:
        """A task with rollouts to come."""
        self.tasks[task.task_id] = task
        if task.queue not in self.queues:
            self.queues[task.queue] = Counts()

    def count(self, rollout: Rollout) -> bool:
        """A rollout ended, or an attempt failed (its state is QUEUED). Returns whether it was its group's last."""
        task = self.tasks[rollout.task_id]
        counts = self.queues[task.queue]
        match rollout.state:
            case State.QUEUED:
                counts.retried += 1
                return False
            case State.CANCELLED:
                counts.cancelled += 1
            case State.DEAD:
                counts.dead += 1
            case _:
                counts.done += 1
        task.open -= 1
        return task.open == 0


def queue_of(task: task_pb2.Task) -> str:
    """The queue a task waits in."""
    return task.queue or "default"


def rollout_ids(task_id: str, rollouts: int) -> list[str]:
    """The ids of a task's rollouts."""
    return [f"{task_id}/{place}" for place in range(rollouts or 1)]


def place_of(rollout: Rollout) -> int:
    """A rollout's place in its group."""
    return int(rollout.rollout_id[len(rollout.task_id) + 1 :])


def make_rollouts(task: task_pb2.Task, ids: Iterable[str], *, now: float) -> list[Rollout]:
    """A task's rollouts as the scheduler sees them; `now` by the monotonic clock."""
    requirement, queue, priority = requirement_of(task), queue_of(task), task.priority
    attempts, backoff = DEFAULT_ATTEMPTS, DEFAULT_BACKOFF_SECONDS
    if task.HasField("retry"):
        attempts = task.retry.max_attempts or attempts
        backoff = seconds_of(task.retry.initial_backoff) or backoff
    schedule_by = None
    if task.HasField("limits") and task.limits.HasField("schedule_deadline"):
        schedule_by = now + seconds_of(task.limits.schedule_deadline)
    return [
        Rollout(
            rollout_id,
            task.id,
            requirement,
            queue=queue,
            priority=priority,
            max_attempts=attempts,
            backoff_seconds=backoff,
            schedule_by=schedule_by,
            queued_at=now,
        )
        for rollout_id in ids
    ]


def requirement_of(task: task_pb2.Task) -> Requirement:
    """What a node must offer to run a task."""
    labels = task.required_node_labels
    return Requirement(task.agent.kind, frozenset(labels.items()) if labels else NO_LABELS)


def cutoff_of(task: task_pb2.Task) -> int:
    """How many usable rollouts of a task are enough; 0: all are wanted."""
    return task.straggler_cutoff.after_usable if task.HasField("straggler_cutoff") else 0


def seconds_of(duration: Duration) -> float:
    """A Duration in seconds."""
    return duration.seconds + duration.nanos / 1e9


class Recovery:
    """After a restart: what waited waits again, and what nodes ran stays theirs for as long as a lease lasts."""

    def __init__(self, backlog: Backlog, scheduler: Scheduler, attempts: Mapping[tuple[int, int], AttemptRow]) -> None:
        self._backlog = backlog
        self._scheduler = scheduler
        self._attempts = attempts

    def run(self, stored: Sequence[StoredTask], *, now: float, wall: float) -> None:
        """Takes tasks on; `now` by the monotonic clock, `wall` by the other."""
        for row in stored:
            task = task_pb2.Task.FromString(row.body)
            places: Sequence[int] = range(row.rollouts)
            if row.ended:
                ended = {end.place for end in row.ended}
                places = [place for place in places if place not in ended]
            self._backlog.add(recovered(row, task, open=len(places)))
            ids = [f"{row.task_id}/{place}" for place in places]
            rollouts = make_rollouts(task, ids, now=now - max(wall - row.submitted_at, 0.0))
            began = [(row.number, place) in self._attempts for place in places] if self._attempts else ()
            if any(began):
                for place, rollout in zip(places, rollouts, strict=True):
                    self._take(rollout, self._attempts.get((row.number, place)), now)
            else:
                self._scheduler.submit(rollouts)

    def _take(self, rollout: Rollout, row: AttemptRow | None, now: float) -> None:
        if row is not None:
            rollout.attempt, rollout.failures = row.attempt, row.failures
        if row is None or not row.lease_id:
            self._scheduler.submit([rollout])
            return
        expires_at = now + self._scheduler.lease_seconds
        lease = Lease(row.lease_id, rollout.rollout_id, row.node_id, row.attempt, expires_at)
        self._scheduler.restore(rollout, lease, row.incarnation)


def recovered(row: StoredTask, task: task_pb2.Task, *, open: int) -> OpenTask:
    """A stored task with so many rollouts to come."""
    usable = sum(end.outcome in USABLE for end in row.ended)
    number, task_id, queue, labels, cutoff = row.number, row.task_id, row.queue, row.labels, cutoff_of(task)
    return OpenTask(number, task_id, queue, labels, row.traceparent, row.rollouts, row.body, open, cutoff, usable)
