"""Accepts tasks: each once, durably, and only as long as there is room."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from practicum.common.errors import AlreadyExists, ResourceExhausted
from practicum.executor.backlog import Backlog, OpenTask, make_rollouts, queue_of, rollout_ids
from practicum.executor.labels import labels_json
from practicum.executor.rows import TaskRow
from practicum.executor.scheduler import Scheduler
from practicum.executor.store import SqlStore
from practicum.executor.validation import MAX_ROLLOUTS, check_tasks
from practicum.executor.writer import Writer
from practicum.v1 import task_pb2

MAX_BACKLOG = 200_000
NO_LABELS: Mapping[str, str] = {}


class Intake:
    """The way in."""

    def __init__(
        self,
        store: SqlStore,
        writer: Writer,
        backlog: Backlog,
        scheduler: Scheduler,
        *,
        last_number: int,
        max_backlog: int = MAX_BACKLOG,
        queue_limits: Mapping[str, int] | None = None,
    ) -> None:
        self._store = store
        self._writer = writer
        self._backlog = backlog
        self._scheduler = scheduler
        self._last_number = last_number
        self.max_backlog = max_backlog
        self.queue_limits = queue_limits or {}
        self._watches: dict[int, dict[str, bytes]] = {}

    async def unknown(self, tasks: Sequence[task_pb2.Task], request_id: str) -> list[task_pb2.Task]:
        """Checks tasks, gives them ids, and returns those that are new."""
        check_tasks(tasks, max_rollouts=min(MAX_ROLLOUTS, self.max_backlog))
        made = [not task.id and not request_id for task in tasks]
        for index, task in enumerate(tasks):
            task.id = task.id or make_id(request_id, index)
        asked = [task.id for task, new in zip(tasks, made, strict=True) if not new]
        with self._watching() as known:
            if asked:
                known |= await asyncio.to_thread(self._store.known_bodies, asked)
        return self._new_of(tasks, known)

    def accept(self, tasks: Sequence[task_pb2.Task], traceparent: str) -> asyncio.Future[None]:
        """Takes new tasks on at once. The future tells when they are on disk, or why they were refused after all."""
        self.make_room(tasks)
        now, wall = time.monotonic(), time.time()
        rows = []
        for task in tasks:
            row = self._row(task, traceparent, wall)
            rows.append(row)
            self._backlog.add(open_task(row, task))
            self._scheduler.submit(make_rollouts(task, rollout_ids(task.id, row.rollouts), now=now))
        kept = self._writer.gather().add_tasks(rows)
        kept.add_done_callback(lambda kept: self._withdraw(rows) if kept.exception() is not None else None)
        return kept

    def make_room(self, tasks: Sequence[task_pb2.Task]) -> None:
        """Raises ResourceExhausted when so many more rollouts would exceed a limit."""
        wanted: dict[str, int] = {}
        for task in tasks:
            queue = queue_of(task)
            wanted[queue] = wanted.get(queue, 0) + (task.rollouts or 1)
        standing = len(self._scheduler.rollouts)
        if wanted and standing + sum(wanted.values()) > self.max_backlog:
            raise full(f"{standing} rollouts wait or run, and {self.max_backlog} is the limit", "BACKLOG_FULL")
        for queue in wanted.keys() & self.queue_limits.keys():
            counts, limit = self._scheduler.queues.get(queue), self.queue_limits[queue]
            standing = counts.queued + counts.running if counts is not None else 0
            if standing + wanted[queue] > limit:
                raise full(f"{standing} rollouts of queue {queue} wait or run, and {limit} is its limit", "QUEUE_FULL")

    def left(self, task: OpenTask) -> None:
        """A task's end is on disk. Who looks for known tasks just now may have asked the store before that."""
        if task.open == 0 and self._backlog.tasks.get(task.task_id) is task:
            del self._backlog.tasks[task.task_id]
            for watch in self._watches.values():
                watch[task.task_id] = task.body

    @contextmanager
    def _watching(self) -> Iterator[dict[str, bytes]]:
        watch: dict[str, bytes] = {}
        self._watches[id(watch)] = watch
        try:
            yield watch
        finally:
            del self._watches[id(watch)]

    def _new_of(self, tasks: Sequence[task_pb2.Task], known: Mapping[str, bytes]) -> list[task_pb2.Task]:
        seen, new = dict(known), []
        for task in tasks:
            body = body_of(task)
            standing = self._backlog.tasks.get(task.id)
            before = standing.body if standing is not None else seen.get(task.id)
            if before is None:
                seen[task.id] = body
                new.append(task)
            elif before != body:
                raise AlreadyExists(
                    f"task {task.id} was submitted before with another body; choose another id",
                    reason="TASK_ID_REUSED",
                    metadata={"task_id": task.id},
                )
        return new

    def _row(self, task: task_pb2.Task, traceparent: str, wall: float) -> TaskRow:
        self._last_number += 1
        labels, rollouts = labels_json(task.labels), task.rollouts or 1
        number, queue, body = self._last_number, queue_of(task), body_of(task)
        return TaskRow(number, task.id, queue, labels, traceparent, rollouts, wall, True, body)

    def _withdraw(self, rows: Sequence[TaskRow]) -> None:
        """The store could not be written: it is as if the tasks had never come."""
        for row in rows:
            if (task := self._backlog.tasks.get(row.task_id)) is not None and task.number == row.number:
                del self._backlog.tasks[row.task_id]
            for rollout_id in rollout_ids(row.task_id, row.rollouts):
                self._scheduler.cancel(rollout_id)


def make_id(request_id: str, index: int) -> str:
    """An id, which a repeat of the same request gives again."""
    return uuid.uuid5(uuid.NAMESPACE_OID, f"{request_id}/{index}").hex if request_id else uuid.uuid4().hex


def body_of(task: task_pb2.Task) -> bytes:
    """The task as it is kept: bytes that are the same for the same task."""
    return task.SerializeToString(deterministic=True)


def open_task(row: TaskRow, task: task_pb2.Task) -> OpenTask:
    """A new task."""
    labels, cutoff = dict(task.labels) or NO_LABELS, task.straggler_cutoff.after_usable
    number, task_id, queue, rollouts = row.number, row.task_id, row.queue, row.rollouts
    return OpenTask(number, task_id, queue, labels, row.traceparent, rollouts, row.body, rollouts, cutoff)


def full(detail: str, reason: str) -> ResourceExhausted:
    """Says when to come back."""
    return ResourceExhausted(f"{detail}; nothing was taken", reason=reason, retry_after_seconds=1.0)
