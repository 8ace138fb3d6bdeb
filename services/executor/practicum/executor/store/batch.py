"""What one transaction makes durable: gathered in memory by those who decide, written as a whole.

Decisions stand in memory at once; nobody is told of them before their batch is on disk. So a rollout may be added,
begun and ended within one batch, and only what is left of that is written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.engine import Connection
from sqlalchemy.engine.interfaces import DBAPICursor

from practicum.common.errors import AlreadyExists
from practicum.executor.store.changes import Change
from practicum.executor.store.rows import AttemptRow, JournalRow, ResultRow, TaskRow, TrajectoryRow
from practicum.executor.store.statements import Statements

Withdraw = Callable[[Sequence[TaskRow]], None]
Place = tuple[int, int]
"""A rollout: its task's number, and its place in the group."""


class TasksKnown(Exception):
    """Tasks whose ids are taken, with the serialized Tasks that have them. Nothing was written."""

    def __init__(self, bodies: Mapping[str, bytes]) -> None:
        super().__init__(f"{len(bodies)} tasks are known")
        self.bodies = bodies


@dataclass(slots=True, eq=False)
class Submit:
    """The new tasks of one request."""

    rows: list[TaskRow]
    withdraw: Withdraw
    kept: asyncio.Future[None]

    def refuse(self, error: Exception) -> list[TaskRow]:
        """None is taken. Returns them."""
        rows = self.drop(self.rows)
        if not self.kept.done():
            self.kept.set_exception(error)
            self.kept.exception()  # Whoever waited may have gone: it is nobody's then.
        return rows

    def drop(self, rows: Sequence[TaskRow]) -> list[TaskRow]:
        """These are not taken. Returns them."""
        self.withdraw(rows)
        numbers = {row.number for row in rows}
        self.rows = [row for row in self.rows if row.number not in numbers]
        return list(rows)


@dataclass(slots=True)
class Batch:
    """Rows, other changes, and what is to be done once they are on disk."""

    attempts: dict[Place, AttemptRow] = field(default_factory=dict)
    ended: list[Place] = field(default_factory=list)
    results: dict[int, ResultRow] = field(default_factory=dict)
    trajectories: dict[int, TrajectoryRow] = field(default_factory=dict)
    closed: list[int] = field(default_factory=list)
    messages: list[JournalRow] = field(default_factory=list)
    acks: dict[str, int] = field(default_factory=dict)
    _changes: list[tuple[Change, asyncio.Future[Any]]] = field(default_factory=list)
    _submits: list[Submit] = field(default_factory=list)
    _effects: list[Callable[[], None]] = field(default_factory=list)

    def add_tasks(self, rows: Sequence[TaskRow], withdraw: Withdraw) -> asyncio.Future[None]:
        """Keeps tasks. The future tells when they are on disk, or why they were not taken.

        `withdraw` is called with those that are not: all of them, or those that are known already.
        """
        submit = Submit(list(rows), withdraw, asyncio.get_running_loop().create_future())
        self._submits.append(submit)
        return submit.kept

    def put_attempt(self, row: AttemptRow) -> None:
        """Keeps how far a rollout is; the newest counts."""
        self.attempts[row.task_number, row.place] = row

    def end_rollout(self, result: ResultRow, body: bytes) -> None:
        """Keeps a result, and its group's end if it is the last."""
        place = (result.task_number, result.place)
        self.attempts.pop(place, None)
        self.ended.append(place)
        self.results[result.number] = result
        self.trajectories[result.number] = TrajectoryRow(result.number, body)
        if result.completes:
            self.closed.append(result.task_number)

    def make(self, change: Change) -> asyncio.Future[Any]:
        """Makes another change, after the rows. The future tells what came of it."""
        made: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._changes.append((change, made))
        return made

    def done(self) -> asyncio.Future[None]:
        """A future that is done once all this is on disk."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._effects.append(lambda: settle(done, None))
        return done

    def then(self, effect: Callable[[], None]) -> None:
        """Does something in the event loop once all this is on disk; effects keep their order."""
        self._effects.append(effect)

    @property
    def rows(self) -> int:
        """How many rows and changes are written."""
        tasks = sum(len(submit.rows) for submit in self._submits)
        results = len(self.ended) + len(self.results) + len(self.trajectories) + len(self.closed)
        return tasks + len(self.attempts) + results + len(self.messages) + len(self.acks) + len(self._changes)

    def holds(self, result_number: int) -> bool:
        """Whether a result is among what is written."""
        return result_number in self.results

    def write(self, connection: Connection, statements: Statements) -> list[Any]:
        """Within a transaction, in any thread. Returns what came of the changes. Raises TasksKnown."""
        cursor = connection.connection.cursor()
        self._write_tasks(cursor, connection, statements)
        statements.drop_attempts.execute(cursor, self.ended)
        statements.put_attempts.execute(cursor, list(self.attempts.values()))
        statements.add_results.execute(cursor, list(self.results.values()))
        statements.add_trajectories.execute(cursor, list(self.trajectories.values()))
        statements.close_tasks.execute(cursor, [(number,) for number in self.closed])
        statements.add_messages.execute(cursor, self.messages)
        now = time.time()
        for name, to in self.acks.items():
            cursor.execute(statements.move_consumers, (to, now, name))
        cursor.close()
        return [change.apply(connection) for change, _ in self._changes]

    def _write_tasks(self, cursor: DBAPICursor, connection: Connection, statements: Statements) -> None:
        rows = [row for submit in self._submits for row in submit.rows]
        if not rows:
            return
        if statements.add_tasks.execute(cursor, rows) != len(rows):
            numbers = {row.task_id: row.number for row in rows}
            known = statements.known_tasks(connection, list(numbers))
            others = {task_id: body for task_id, number, body in known if number != numbers[task_id]}
            if others:  # Else they are our own, of a commit that was cut off.
                raise TasksKnown(others)

    def written(self, answers: Sequence[Any]) -> None:
        """All this is on disk: everybody is told."""
        for submit in self._submits:
            settle(submit.kept, None)
        for (_, made), answer in zip(self._changes, answers, strict=True):
            settle(made, answer)
        for effect in self._effects:
            effect()

    def refuse_tasks(self, error: Exception) -> list[TaskRow]:
        """Takes the new tasks out again, and tells their submitters. Returns the tasks."""
        submits, self._submits = self._submits, []
        return [row for submit in submits for row in submit.refuse(error)]

    def reject_known(self, known: Mapping[str, bytes]) -> list[TaskRow]:
        """Takes tasks out whose ids are taken: repeats of the same body, and all of a submit with another body."""
        rejected: list[TaskRow] = []
        for submit in list(self._submits):
            taken = [row for row in submit.rows if row.task_id in known]
            if other := [row.task_id for row in taken if known[row.task_id] != row.body]:
                self._submits.remove(submit)
                rejected += submit.refuse(reused(other[0]))
            elif taken:
                rejected += submit.drop(taken)
        return rejected

    def forget(self, tasks: Sequence[TaskRow]) -> None:
        """Takes out what was decided of tasks that were not taken, and what was said in them."""
        if not tasks:
            return
        numbers = {task.number for task in tasks}
        sessions = {f"{task.task_id}/{place}" for task in tasks for place in range(task.rollouts)}
        self.attempts = {place: row for place, row in self.attempts.items() if place[0] not in numbers}
        self.ended = [place for place in self.ended if place[0] not in numbers]
        self.results = {n: row for n, row in self.results.items() if row.task_number not in numbers}
        self.trajectories = {n: row for n, row in self.trajectories.items() if n in self.results}
        self.closed = [number for number in self.closed if number not in numbers]
        self.messages = [row for row in self.messages if row.session_id not in sessions]


def reused(task_id: str) -> AlreadyExists:
    """Tells that an id is taken."""
    detail = f"task {task_id} was submitted before with another body; choose another id"
    return AlreadyExists(detail, reason="TASK_ID_REUSED", metadata={"task_id": task_id})


def settle(future: asyncio.Future[Any], answer: Any) -> None:
    """Sets a result, unless whoever waited has gone."""
    if not future.done():
        future.set_result(answer)
