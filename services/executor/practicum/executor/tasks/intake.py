"""Accepts tasks: each once, durably, and only as long as there is room."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from practicum.common.errors import ResourceExhausted
from practicum.executor.scheduling.scheduler import Scheduler
from practicum.executor.store.batch import reused
from practicum.executor.store.labels import NONE, labels_json
from practicum.executor.store.rows import TaskRow
from practicum.executor.store.sql import SqlStore
from practicum.executor.store.writer import Writer
from practicum.executor.tasks.backlog import Backlog, OpenTask, cutoff_of, make_rollouts, queue_of, rollout_ids
from practicum.executor.tasks.validation import MAX_ROLLOUTS, check_body, check_tasks
from practicum.v1 import task_pb2

MAX_BACKLOG = 200_000


class Offered(NamedTuple):
    """A task with an id, and as it is kept: bytes that are the same for the same task."""

    task: task_pb2.Task
    body: bytes


class Accepted(NamedTuple):
    """The ids of tasks that are new, and what to wait for before anybody is told."""

    new: list[str]
    waits: list[asyncio.Future[None]]


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
        withdrawn: Callable[[Sequence[str]], None] = lambda rollout_ids: None,
    ) -> None:
        """`withdrawn` is told of rollouts whose tasks the store did not take after all."""
        self._store = store
        self._writer = writer
        self._backlog = backlog
        self._scheduler = scheduler
        self._last_number = last_number
        self.max_backlog = max_backlog
        self.queue_limits = queue_limits or {}
        self._withdrawn = withdrawn

    async def accept(self, tasks: Sequence[task_pb2.Task], request_id: str, traceparent: str) -> Accepted:
        """Checks tasks, gives them ids, and takes on those that are new, at once; nobody is to be told before `kept`.

        Whether a task ended long ago, and its id is taken, is found out by the transaction that keeps it: then it is as
        if it had never come.
        """
        check_tasks(tasks, max_rollouts=min(MAX_ROLLOUTS, self.max_backlog))
        for index, task in enumerate(tasks):
            task.id = task.id or make_id(request_id, index)
        new, repeats = self._divide(tasks)
        try:
            self.make_room([offer.task for offer in new])
        except ResourceExhausted:  # A repeat of what ended adds nothing to a full backlog.
            known = await asyncio.to_thread(self._store.known_bodies, [offer.task.id for offer in new])
            new, repeats = self._divide(tasks)  # Others may have submitted the same meanwhile.
            new = without_known(new, known)
            self.make_room([offer.task for offer in new])
        waits = [kept for task in repeats if (kept := task.kept) is not None]
        if new:
            waits.append(self._take_on(new, traceparent))
        return Accepted([offer.task.id for offer in new], waits)

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
        """A task's end is on disk: it leaves memory."""
        if task.open == 0 and self._backlog.tasks.get(task.task_id) is task:
            del self._backlog.tasks[task.task_id]

    def _divide(self, tasks: Sequence[task_pb2.Task]) -> tuple[list[Offered], list[OpenTask]]:
        """Those that memory does not know, and those that it does."""
        new: dict[str, Offered] = {}
        repeats = []
        for index, task in enumerate(tasks):
            offer = Offered(task, task.SerializeToString(deterministic=True))
            check_body(index, offer.body)
            standing = self._backlog.tasks.get(task.id) or new.get(task.id)
            if standing is None:
                new[task.id] = offer
            elif standing.body != offer.body:
                raise reused(task.id)
            elif isinstance(standing, OpenTask):
                repeats.append(standing)
        return list(new.values()), repeats

    def _take_on(self, new: Sequence[Offered], traceparent: str) -> asyncio.Future[None]:
        now, wall = time.monotonic(), time.time()
        rows = [self._row(offer, traceparent, wall) for offer in new]
        kept = self._writer.gather().add_tasks(rows, self._withdraw)
        for row, offer in zip(rows, new, strict=True):
            task = open_task(row, offer.task, kept)
            self._backlog.add(task)
            self._scheduler.submit(make_rollouts(offer.task, rollout_ids(row.task_id, row.rollouts), now=now))
        kept.add_done_callback(lambda _: self._durable(rows))
        return kept

    def _durable(self, rows: Sequence[TaskRow]) -> None:
        for row in rows:
            if (task := self._backlog.tasks.get(row.task_id)) is not None and task.number == row.number:
                task.kept = None

    def _row(self, offer: Offered, traceparent: str, wall: float) -> TaskRow:
        self._last_number += 1
        task = offer.task
        labels, rollouts = labels_json(task.labels), task.rollouts or 1
        return TaskRow(
            self._last_number, task.id, queue_of(task), labels, traceparent, rollouts, wall, True, offer.body
        )

    def _withdraw(self, rows: Sequence[TaskRow]) -> None:
        """The store did not take these tasks: it is as if they had never come."""
        for row in rows:
            if (task := self._backlog.tasks.get(row.task_id)) is not None and task.number == row.number:
                del self._backlog.tasks[row.task_id]
            ids = rollout_ids(row.task_id, row.rollouts)
            for rollout_id in ids:
                self._scheduler.cancel(rollout_id)
            self._withdrawn(ids)


def without_known(offered: Sequence[Offered], known: Mapping[str, bytes]) -> list[Offered]:
    """Those that are new; raises AlreadyExists when one has the id of another that is known."""
    if conflicts := [o.task.id for o in offered if known.get(o.task.id, o.body) != o.body]:
        raise reused(conflicts[0])
    return [offer for offer in offered if offer.task.id not in known]


def make_id(request_id: str, index: int) -> str:
    """An id, which a repeat of the same request gives again."""
    return uuid.uuid5(uuid.NAMESPACE_OID, f"{request_id}/{index}").hex if request_id else uuid.uuid4().hex


def open_task(row: TaskRow, task: task_pb2.Task, kept: asyncio.Future[None]) -> OpenTask:
    """A new task."""
    labels = dict(task.labels) if task.labels else NONE
    cutoff = cutoff_of(task)
    number, task_id, queue, rollouts = row.number, row.task_id, row.queue, row.rollouts
    return OpenTask(number, task_id, queue, labels, row.traceparent, rollouts, row.body, rollouts, cutoff, kept=kept)


def full(detail: str, reason: str) -> ResourceExhausted:
    """Says when to come back."""
    return ResourceExhausted(f"{detail}; nothing was taken", reason=reason, retry_after_seconds=1.0)
