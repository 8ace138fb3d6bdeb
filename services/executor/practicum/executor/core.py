"""Joins scheduler and store: what was accepted or ended is on disk before anybody is told."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence

from practicum.common.errors import AlreadyExists
from practicum.executor.pending import Requirement
from practicum.executor.scheduler import Lease, Rollout, Scheduler
from practicum.executor.store import SqlStore
from practicum.executor.validation import check_tasks
from practicum.v1 import task_pb2

DEFAULT_ATTEMPTS = 3
DEFAULT_BACKOFF_SECONDS = 0.2


class Executor:
    """One active executor. Methods are called from one event loop."""

    def __init__(self, store: SqlStore, *, lease_seconds: float = 30.0) -> None:
        self.store = store
        self.tasks: dict[str, task_pb2.Task] = {}
        self.scheduler = Scheduler(lease_seconds=lease_seconds, new_lease_id=lambda: uuid.uuid4().hex)
        # Writes are serialized: a submit's check and its insert must see the same tasks.
        self._write = asyncio.Lock()
        self._recover()

    async def submit(self, tasks: Sequence[task_pb2.Task], *, request_id: str = "") -> list[task_pb2.Task]:
        """Accepts tasks durably. Repeats of the same body change nothing. Returns them with their ids."""
        check_tasks(tasks)
        named = [with_id(task, request_id, index) for index, task in enumerate(tasks)]
        # Shielded: a caller that gives up half-way must not leave tasks on disk that nobody schedules.
        await asyncio.shield(self._accept(named))
        return named

    async def _accept(self, named: Sequence[task_pb2.Task]) -> None:
        async with self._write:
            new = await self._unknown(named)
            rollouts = [(rollout_id, task.id) for task in new for rollout_id in rollout_ids(task)]
            if new:
                bodies = [(task.id, serialized(task)) for task in new]
                await asyncio.to_thread(self.store.add, bodies, rollouts)
        for task in new:
            self._schedule(task, {})

    async def dispatch(self) -> list[Lease]:
        """Gives out what can be given; attempts are on disk before nodes hear of them."""
        leases = self.scheduler.dispatch(time.monotonic())
        if leases:
            attempts = [(lease.rollout_id, lease.attempt) for lease in leases]
            async with self._write:
                await asyncio.to_thread(self.store.start_attempts, attempts)
        return leases

    async def _unknown(self, tasks: Sequence[task_pb2.Task]) -> list[task_pb2.Task]:
        known = await asyncio.to_thread(self.store.tasks, [task.id for task in tasks])
        new: dict[str, task_pb2.Task] = {}
        for task in tasks:
            before = known.get(task.id) or (serialized(new[task.id]) if task.id in new else None)
            if before is None:
                new[task.id] = task
            elif before != serialized(task):
                raise AlreadyExists(
                    f"task {task.id} was submitted before with another body; choose another id",
                    reason="TASK_ID_REUSED",
                    metadata={"task_id": task.id},
                )
        return list(new.values())

    def _recover(self) -> None:
        attempts: dict[str, dict[str, int]] = {}
        for stored in self.store.unfinished():
            self.tasks.setdefault(stored.task_id, task_pb2.Task.FromString(stored.task))
            attempts.setdefault(stored.task_id, {})[stored.rollout_id] = stored.attempt
        for task_id, unfinished in attempts.items():
            self._schedule(self.tasks[task_id], unfinished)

    def _schedule(self, task: task_pb2.Task, unfinished: dict[str, int]) -> None:
        """Queues a task's rollouts; after a restart only the unfinished ones, with the attempts they had."""
        self.tasks[task.id] = task
        requirement = Requirement(task.agent.kind, frozenset(task.required_node_labels.items()))
        backoff = task.retry.initial_backoff.ToTimedelta().total_seconds() or DEFAULT_BACKOFF_SECONDS
        self.scheduler.submit(
            Rollout(
                rollout_id,
                task.id,
                requirement,
                priority=task.priority,
                max_attempts=task.retry.max_attempts or DEFAULT_ATTEMPTS,
                backoff_seconds=backoff,
                attempt=unfinished.get(rollout_id, 0),
            )
            for rollout_id in (unfinished or rollout_ids(task))
        )


def with_id(task: task_pb2.Task, request_id: str, index: int) -> task_pb2.Task:
    """The task with an id: its own, or one that a repeat of the same request gives again."""
    if task.id:
        return task
    named = task_pb2.Task()
    named.CopyFrom(task)
    named.id = uuid.uuid5(uuid.NAMESPACE_OID, f"{request_id}/{index}").hex if request_id else uuid.uuid4().hex
    return named


def rollout_ids(task: task_pb2.Task) -> list[str]:
    """The ids of a task's rollouts."""
    return [f"{task.id}/{index}" for index in range(task.rollouts or 1)]


def serialized(task: task_pb2.Task) -> bytes:
    """The task as bytes that are the same for the same task."""
    return task.SerializeToString(deterministic=True)
