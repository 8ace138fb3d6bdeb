"""What one transaction makes durable: gathered in memory by those who decide, written as a whole.

Decisions stand in memory at once; nobody is told of them before their batch is on disk. So a rollout may be added,
begun and ended within one batch, and only what is left of that is written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.engine import Connection

from practicum.executor.changes import Change
from practicum.executor.rows import AttemptRow, JournalRow, ResultRow, TaskRow, TrajectoryRow
from practicum.executor.statements import Statements

Place = tuple[int, int]
"""A rollout: its task's number, and its place in the group."""


@dataclass(slots=True)
class Batch:
    """Rows, other changes, and what is to be done once they are on disk."""

    tasks: list[TaskRow] = field(default_factory=list)
    attempts: dict[Place, AttemptRow] = field(default_factory=dict)
    ended: list[Place] = field(default_factory=list)
    results: list[ResultRow] = field(default_factory=list)
    trajectories: list[TrajectoryRow] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    messages: list[JournalRow] = field(default_factory=list)
    acks: dict[str, int] = field(default_factory=dict)
    _changes: list[tuple[Change, asyncio.Future[Any]]] = field(default_factory=list)
    _submits: list[asyncio.Future[None]] = field(default_factory=list)
    _effects: list[Callable[[], None]] = field(default_factory=list)

    def add_tasks(self, rows: Sequence[TaskRow]) -> asyncio.Future[None]:
        """Keeps tasks. The future tells when they are on disk, or why they could not be taken."""
        self.tasks.extend(rows)
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._submits.append(kept)
        return kept

    def put_attempt(self, row: AttemptRow) -> None:
        """Keeps how far a rollout is; the newest counts."""
        self.attempts[row.task_number, row.place] = row

    def end_rollout(self, result: ResultRow, body: bytes) -> None:
        """Keeps a result, and its group's end if it is the last."""
        place = (result.task_number, result.place)
        self.attempts.pop(place, None)
        self.ended.append(place)
        self.results.append(result)
        self.trajectories.append(TrajectoryRow(result.number, body))
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

    def write(self, connection: Connection, statements: Statements) -> list[Any]:
        """Within a transaction, in any thread. Returns what came of the changes."""
        now = time.time()
        work: tuple[tuple[str, Sequence[tuple[Any, ...]]], ...] = (
            (statements.add_tasks, self.tasks),
            (statements.drop_attempts, self.ended),
            (statements.put_attempts, list(self.attempts.values())),
            (statements.add_results, self.results),
            (statements.add_trajectories, self.trajectories),
            (statements.close_tasks, [(number,) for number in self.closed]),
            (statements.add_messages, self.messages),
            (statements.move_consumers, [(to, now, name) for name, to in self.acks.items()]),
        )
        cursor = connection.connection.cursor()
        for statement, rows in work:
            if rows:
                cursor.executemany(statement, rows)
        cursor.close()
        return [change.apply(connection) for change, _ in self._changes]

    def written(self, answers: Sequence[Any]) -> None:
        """All this is on disk: everybody is told."""
        for kept in self._submits:
            settle(kept, None)
        for (_, made), answer in zip(self._changes, answers, strict=True):
            settle(made, answer)
        for effect in self._effects:
            effect()

    def refuse_tasks(self, error: Exception) -> None:
        """Takes the new tasks out again with all that was decided of them, and tells their submitters."""
        refused = {row.number for row in self.tasks}
        self.tasks = []
        self.attempts = {place: row for place, row in self.attempts.items() if place[0] not in refused}
        self.ended = [place for place in self.ended if place[0] not in refused]
        numbers = {row.number for row in self.results if row.task_number in refused}
        self.results = [row for row in self.results if row.number not in numbers]
        self.trajectories = [row for row in self.trajectories if row.number not in numbers]
        self.closed = [number for number in self.closed if number not in refused]
        submits, self._submits = self._submits, []
        for kept in submits:
            if not kept.done():
                kept.set_exception(error)


def settle(future: asyncio.Future[Any], answer: Any) -> None:
    """Sets a result, unless whoever waited has gone."""
    if not future.done():
        future.set_result(answer)
