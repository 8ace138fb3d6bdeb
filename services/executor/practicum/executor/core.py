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
from practicum.executor.validation import MAX_ROLLOUTS, check_tasks
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
        self._ending: set[str] = set()
        self._accepting = 0
        recover(self.backlog, self.scheduler, store.unfinished(), now=time.monotonic())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Commits for as long as the context lasts, and what waits at its end."""
        async with background(self.writer.run(), stop=self.writer.close):
            yield

    async def submit(self, tasks: Sequence[task_pb2.Task], *, request_id: str = "") -> list[task_pb2.Task]:
        """Accepts tasks durably. Repeats of the same body change nothing. Returns them with their ids."""
        check_tasks(tasks, max_rollouts=min(MAX_ROLLOUTS, self.max_backlog))
        named = [with_id(task, request_id, index) for index, task in enumerate(tasks)]
        # Shielded: a caller that gives up half-way must not leave tasks on disk that nobody schedules.
        await asyncio.shield(self._accept(named))
        return named

    async def cancel(self, task_ids: Iterable[str], labels: Mapping[str, str], reason: str) -> Cancelled:
        """Cancels what has not ended of these tasks, and of those with all these labels."""
        named, open_tasks = set(task_ids), self.backlog.tasks
        if unknown := named - open_tasks.keys():
            # A submit that is being committed is through when this is: its tasks are among the open ones then.
            await self.writer.write(BuryTasks(sorted(unknown)))
        found = named & open_tasks.keys()
        if labels:
            found |= {task_id for task_id, task in open_tasks.items() if matches(task.labels, labels)}
        ids = [rollout_id for task_id in sorted(found) for rollout_id in rollout_ids(open_tasks[task_id])]
        rollouts = self.scheduler.rollouts
        return await self._cancel([rollouts[rollout_id] for rollout_id in ids if rollout_id in rollouts], reason)

    async def end(self, results: Sequence[EndedRollout], rollouts: Sequence[Rollout]) -> None:
        """Keeps results of rollouts that the scheduler has let go. Shielded by the writer: it happens in any case."""
        if not results:
            return
        for rollout in rollouts:
            self.backlog.count(rollout)
            self._ending.add(rollout.rollout_id)
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

    def has_open(self, rollout_id: str) -> bool:
        """Whether a rollout waits, runs, or has ended without being on disk yet."""
        return rollout_id in self.scheduler.rollouts or rollout_id in self._ending

    def _tell_ended(self, results: Sequence[EndedRollout]) -> None:
        self._ending.difference_update(result.rollout_id for result in results)
        self.journal.ended(result.rollout_id for result in results)
        self.events.ring()

    async def _accept(self, named: Sequence[task_pb2.Task]) -> None:
        wanted = await self._room_for(named)
        self._accepting += wanted
        try:
            accepted: Accepted = await self.writer.write(AddTasks([new_task(task) for task in named]))
        finally:
            self._accepting -= wanted
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
        if accepted.cancelled_before:
            await self.cancel(accepted.cancelled_before, {}, "cancelled before it was submitted")

    async def _cancel(self, rollouts: Sequence[Rollout], reason: str) -> Cancelled:
        leases = [(r.node_id, r.lease_id) for r in rollouts if r.node_id is not None and r.lease_id is not None]
        cancelled = [rollout for rollout in rollouts if self.scheduler.cancel(rollout.rollout_id) is not None]
        error = message_pb2.ErrorPayload(reason="CANCELLED", detail=reason)
        await self.end_here(cancelled, trajectory_pb2.OUTCOME_CANCELLED, error)
        return Cancelled(len(cancelled), leases)

    async def _room_for(self, named: Sequence[task_pb2.Task]) -> int:
        """How many rollouts a request adds. Raises ResourceExhausted when there is no room for them."""
        new = [task for task in named if task.id not in self.backlog.tasks]
        wanted = sum(task.rollouts or 1 for task in new)
        if self._standing + wanted <= self.max_backlog:
            return wanted
        # A repeat of tasks that ended long ago adds nothing.
        known = await asyncio.to_thread(self.store.known_tasks, [task.id for task in new])
        wanted = sum(task.rollouts or 1 for task in new if task.id not in known)
        if wanted and self._standing + wanted > self.max_backlog:
            raise ResourceExhausted(
                f"{self._standing} rollouts wait or run, and {self.max_backlog} is the limit; nothing was taken",
                reason="BACKLOG_FULL",
                retry_after_seconds=1.0,
            )
        return wanted

    @property
    def _standing(self) -> int:
        """Rollouts that have not ended, and those of requests that are being accepted."""
        return len(self.scheduler.rollouts) + self._accepting


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
