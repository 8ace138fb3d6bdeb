"""Accepts tasks: each once, durably, and only as long as there is room."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from practicum.common.errors import AlreadyExists, ResourceExhausted
from practicum.executor.backlog import Backlog, OpenTask, make_rollouts, queue_of, rollout_ids
from practicum.executor.labels import NONE, labels_json
from practicum.executor.rows import TaskRow
from practicum.executor.scheduler import Scheduler
from practicum.executor.store import SqlStore
from practicum.executor.validation import MAX_ROLLOUTS, check_tasks
from practicum.executor.writer import Writer
from practicum.v1 import task_pb2

MAX_BACKLOG = 200_000


class Offered(NamedTuple):
    """A task with an id, and as it is kept: bytes that are the same for the same task."""

    task: task_pb2.Task
    body: bytes


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

    async def unknown(self, tasks: Sequence[task_pb2.Task], request_id: str) -> dict[str, Offered]:
        """Checks tasks, gives them ids, and returns those that are new, by id."""
        check_tasks(tasks, max_rollouts=min(MAX_ROLLOUTS, self.max_backlog))
        made = [not task.id and not request_id for task in tasks]
        for index, task in enumerate(tasks):
            task.id = task.id or make_id(request_id, index)
        asked = [task.id for task, new in zip(tasks, made, strict=True) if not new]
        with self._watching() as known:
            if asked:
                known |= await asyncio.to_thread(self._store.known_bodies, asked)
        return self._new_of(tasks, known)

    def accept(self, offered: Iterable[Offered], traceparent: str) -> asyncio.Future[None]:
        """Takes new tasks on at once. The future tells when they are on disk, or why they were refused after all."""
        offered = list(offered)
        self.make_room([offer.task for offer in offered])
        now, wall = time.monotonic(), time.time()
        rows = []
        for offer in offered:
            row = self._row(offer, traceparent, wall)
            rows.append(row)
            self._backlog.add(open_task(row, offer.task))
            self._scheduler.submit(make_rollouts(offer.task, rollout_ids(row.task_id, row.rollouts), now=now))
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

    def _new_of(self, tasks: Sequence[task_pb2.Task], known: Mapping[str, bytes]) -> dict[str, Offered]:
        new: dict[str, Offered] = {}
        for task in tasks:
            offer = Offered(task, task.SerializeToString(deterministic=True))
            before = self._body_of(task.id, known, new)
            if before is None:
                new[task.id] = offer
            elif before != offer.body:
                raise AlreadyExists(
                    f"task {task.id} was submitted before with another body; choose another id",
                    reason="TASK_ID_REUSED",
                    metadata={"task_id": task.id},
                )
        return new

    def _body_of(self, task_id: str, known: Mapping[str, bytes], new: Mapping[str, Offered]) -> bytes | None:
        """The task of that id as it was accepted before, or is about to be."""
        if (standing := self._backlog.tasks.get(task_id)) is not None:
            return standing.body
        return new[task_id].body if task_id in new else known.get(task_id)

    def _row(self, offer: Offered, traceparent: str, wall: float) -> TaskRow:
        self._last_number += 1
        task = offer.task
        labels, rollouts = labels_json(task.labels), task.rollouts or 1
        return TaskRow(
            self._last_number, task.id, queue_of(task), labels, traceparent, rollouts, wall, True, offer.body
        )

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


def open_task(row: TaskRow, task: task_pb2.Task) -> OpenTask:
    """A new task."""
    labels, cutoff = dict(task.labels) or NONE, task.straggler_cutoff.after_usable
    number, task_id, queue, rollouts = row.number, row.task_id, row.queue, row.rollouts
    return OpenTask(number, task_id, queue, labels, row.traceparent, rollouts, row.body, rollouts, cutoff)


def full(detail: str, reason: str) -> ResourceExhausted:
    """Says when to come back."""
    return ResourceExhausted(f"{detail}; nothing was taken", reason=reason, retry_after_seconds=1.0)
