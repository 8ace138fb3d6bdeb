"""Rollouts whose attempts were used up: listed by state, and put back into their queues when somebody asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from practicum.common.errors import InvalidArgument, NotFound
from practicum.executor.core import Executor
from practicum.executor.store.changes import DeadLetter, Requeue
from practicum.executor.store.labels import matches
from practicum.executor.store.stored import LAST_NUMBER, StoredTask
from practicum.executor.tasks.backlog import make_rollouts, recovered
from practicum.v1 import task_pb2

PAGE = 1_000
AT_ONCE = 5_000


class DeadLetters:
    """Puts dead letters back."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._one_at_a_time = asyncio.Lock()

    async def requeue(self, task_ids: Sequence[str], labels: Mapping[str, str]) -> int:
        """Puts the dead rollouts of these tasks, and of those with all these labels, back. Returns how many."""
        if not task_ids and not labels:
            raise InvalidArgument({"task_ids": "is empty, and so are labels; say which tasks"})
        # Shielded, the turn as well: a caller that gives up half-way must neither leave rollouts on disk that nobody
        # schedules, nor let the next find the same letters.
        return await asyncio.shield(self._in_turn(task_ids, labels))

    async def _in_turn(self, task_ids: Sequence[str], labels: Mapping[str, str]) -> int:
        async with self._one_at_a_time:
            return await self._put_back(await self._find(task_ids, labels))

    async def _find(self, task_ids: Sequence[str], labels: Mapping[str, str]) -> list[StoredTask]:
        store = self._executor.store
        named = await asyncio.to_thread(store.tasks, task_ids)
        if unknown := set(task_ids) - {task.task_id for task in named}:
            raise NotFound(f"no task {min(unknown)!r} was submitted", reason="TASK_UNKNOWN")
        found = {task.number: task for task in named}
        before = LAST_NUMBER
        while labels and (page := await asyncio.to_thread(store.tasks_before, before, PAGE, states=("dead",))):
            found |= {task.number: task for task in page if matches(task.labels, labels)}
            before = page[-1].number
        return [found[number] for number in sorted(found)]

    async def _put_back(self, tasks: Iterable[StoredTask]) -> int:
        letters = {task.task_id: dead_letters(task) for task in tasks}
        tasks = [task for task in tasks if letters[task.task_id]]
        self._executor.intake.make_room([wanted(task, len(letters[task.task_id])) for task in tasks])
        with self._returning([task.task_id for task in tasks]):
            await self._return(tasks, letters)
        return sum(map(len, letters.values()))

    @contextmanager
    def _returning(self, task_ids: Sequence[str]) -> Iterator[None]:
        """Meanwhile these tasks are known and have nothing that could be cancelled: cancels wait."""
        returned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._executor.returning.update(dict.fromkeys(task_ids, returned))
        try:
            yield
        finally:
            for task_id in task_ids:
                del self._executor.returning[task_id]
            returned.set_result(None)

    async def _return(self, tasks: Sequence[StoredTask], letters: Mapping[str, Sequence[DeadLetter]]) -> None:
        for task in tasks:
            self._reopen(task, len(letters[task.task_id]))
        all_letters = [letter for of_task in letters.values() for letter in of_task]
        for start in range(0, len(all_letters), AT_ONCE):
            letters_at_once = all_letters[start : start + AT_ONCE]
            await self._executor.writer.make(Requeue(letters_at_once, self._executor.last_result))
        for task in tasks:
            self._schedule(task, letters[task.task_id])
        self._executor.work.set()

    def _reopen(self, task: StoredTask, count: int) -> None:
        """Before the change is made: the group must not complete while its dead letters come back."""
        backlog = self._executor.backlog
        if (standing := backlog.tasks.get(task.task_id)) is not None:
            standing.open += count
        else:
            backlog.add(recovered(task, task_pb2.Task.FromString(task.body), open=count))

    def _schedule(self, task: StoredTask, letters: Sequence[DeadLetter]) -> None:
        ids = [f"{task.task_id}/{letter.place}" for letter in letters]
        rollouts = make_rollouts(task_pb2.Task.FromString(task.body), ids, now=time.monotonic())
        for rollout, letter in zip(rollouts, letters, strict=True):
            rollout.attempt = letter.attempt
            rollout.schedule_by = None
        self._executor.scheduler.submit(rollouts)


def dead_letters(task: StoredTask) -> list[DeadLetter]:
    """The dead rollouts of a task."""
    return [DeadLetter(task.number, e.place, e.attempt, e.number) for e in task.ended if e.state == "dead"]


def wanted(task: StoredTask, rollouts: int) -> task_pb2.Task:
    """The room that comes back to a queue."""
    return task_pb2.Task(queue=task.queue, rollouts=rollouts)
