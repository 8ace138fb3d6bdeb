"""Joins scheduler and store: what was accepted or ended is on disk before anybody is told."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from practicum.common.background import background
from practicum.common.errors import AlreadyExists, ResourceExhausted
from practicum.executor.backlog import Backlog, make_rollouts, queue_of, recover, rollout_ids
from practicum.executor.bell import Bell
from practicum.executor.changes import Accepted, AddTasks, BuryTasks, EndedRollout, EndRollouts, NewTask
from practicum.executor.journal import Journal
from practicum.executor.labels import labels_json, matches
from practicum.executor.outcomes import ended_here
from practicum.executor.scheduler import Rollout, Scheduler
from practicum.executor.store import SqlStore
from practicum.executor.validation import check_tasks
from practicum.executor.writer import Writer
from practicum.v1 import message_pb2, task_pb2, trajectory_pb2

MAX_BACKLOG = 200_000


@dataclass(frozen=True, slots=True)
class Cancelled:
    """How many rollouts were cancelled, and what nodes (node id, lease id) have to stop."""

    rollouts: int
    leases: Sequence[tuple[str, str]]


class Executor:
    """One active executor. Methods are called from one event loop, within `running`."""

    def __init__(self, store: SqlStore, *, lease_seconds: float = 30.0, max_backlog: int = MAX_BACKLOG) -> None:
        self.store = store
        self.writer = Writer(store)
        self.journal = Journal(store, self.writer)
        self.backlog = Backlog()
        self.scheduler = Scheduler(lease_seconds=lease_seconds, new_lease_id=lambda: uuid.uuid4().hex)
        self.max_backlog = max_backlog
        self.work = asyncio.Event()
        """Set when there may be something to give out."""
        self.events = Bell()
        """Rings when rollouts ended."""
        recover(self.backlog, self.scheduler, store.unfinished(), now=time.monotonic())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Commits for as long as the context lasts, and what waits at its end."""
        async with background(self.writer.run(), stop=self.writer.close):
            yield

    async def submit(self, tasks: Sequence[task_pb2.Task], *, request_id: str = "") -> list[task_pb2.Task]:
        """Accepts tasks durably. Repeats of the same body change nothing. Returns them with their ids."""
        check_tasks(tasks)
        named = [with_id(task, request_id, index) for index, task in enumerate(tasks)]
        # Shielded: a caller that gives up half-way must not leave tasks on disk that nobody schedules.
        await asyncio.shield(self._accept(named))
        return named

    async def cancel(self, task_ids: Iterable[str], labels: Mapping[str, str], reason: str) -> Cancelled:
        """Cancels what has not ended of these tasks, and of those with all these labels."""
        known = set(task_ids) & self.backlog.tasks.keys()
        unknown = set(task_ids) - known
        if labels:
            known |= {task_id for task_id, task in self.backlog.tasks.items() if matches(task.labels, labels)}
        if unknown:
            await self.writer.write(BuryTasks(sorted(unknown)))
        return await self._cancel([r for r in self.scheduler.rollouts.values() if r.task_id in known], reason)

    async def end(self, results: Sequence[EndedRollout], rollouts: Sequence[Rollout]) -> None:
        """Keeps results of rollouts that the scheduler has let go. Shielded by the writer: it happens in any case."""
        if not results:
            return
        for rollout in rollouts:
            self.backlog.count(rollout)
        self.work.set()
        written = self.writer.enqueue(EndRollouts(results))
        written.add_done_callback(lambda _: self._tell_ended(results))
        await asyncio.shield(written)

    async def end_here(
        self, rollouts: Sequence[Rollout], outcome: trajectory_pb2.Outcome.ValueType, error: message_pb2.ErrorPayload
    ) -> None:
        """Ends rollouts that no node will end."""
        tasks = self.backlog.tasks
        await self.end([ended_here(r, tasks[r.task_id], outcome, error) for r in rollouts], rollouts)

    def _tell_ended(self, results: Sequence[EndedRollout]) -> None:
        self.journal.ended(result.rollout_id for result in results)
        self.events.ring()

    async def _accept(self, named: Sequence[task_pb2.Task]) -> None:
        self._check_room(sum(task.rollouts or 1 for task in named))
        accepted: Accepted = await self.writer.write(AddTasks([new_task(task) for task in named]))
        if accepted.conflict:
            raise AlreadyExists(
                f"task {accepted.conflict} was submitted before with another body; choose another id",
                reason="TASK_ID_REUSED",
                metadata={"task_id": accepted.conflict},
            )
        now = time.monotonic()
        for task in named:
            if task.id in accepted.new and task.id not in self.backlog.tasks:
                ids = rollout_ids(task)
                self.backlog.add(task, len(ids))
                self.scheduler.submit(make_rollouts(task, ids, now=now))
        self.work.set()
        await self.cancel(accepted.cancelled_before, {}, "cancelled before it was submitted")

    async def _cancel(self, rollouts: Sequence[Rollout], reason: str) -> Cancelled:
        leases = [(r.node_id, r.lease_id) for r in rollouts if r.node_id is not None and r.lease_id is not None]
        cancelled = [rollout for rollout in rollouts if self.scheduler.cancel(rollout.rollout_id) is not None]
        error = message_pb2.ErrorPayload(reason="CANCELLED", detail=reason)
        await self.end_here(cancelled, trajectory_pb2.OUTCOME_CANCELLED, error)
        return Cancelled(len(cancelled), leases)

    def _check_room(self, rollouts: int) -> None:
        if len(self.scheduler.rollouts) + rollouts > self.max_backlog:
            raise ResourceExhausted(
                f"{len(self.scheduler.rollouts)} rollouts wait or run, and {self.max_backlog} is the limit",
                reason="BACKLOG_FULL",
                retry_after_seconds=1.0,
            )


def with_id(task: task_pb2.Task, request_id: str, index: int) -> task_pb2.Task:
    """The task with an id: its own, or one that a repeat of the same request gives again."""
    if task.id:
        return task
    named = task_pb2.Task()
    named.CopyFrom(task)
    named.id = uuid.uuid5(uuid.NAMESPACE_OID, f"{request_id}/{index}").hex if request_id else uuid.uuid4().hex
    return named


def new_task(task: task_pb2.Task) -> NewTask:
    """The task as it is kept: bytes that are the same for the same task."""
    body = task.SerializeToString(deterministic=True)
    return NewTask(task.id, queue_of(task), labels_json(task.labels), body, rollout_ids(task))
