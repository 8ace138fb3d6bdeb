"""Rare changes of the store; each runs inside a batch's transaction and tells what came of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.engine import Connection

from practicum.executor.store.cursors import end_of
from practicum.executor.store.tables import ATTEMPTS, CONSUMERS, COUNTERS, RESULTS, TASKS, TOMBSTONES, TRAJECTORIES


class Change(Protocol):
    """A change; runs in the writer's thread. Made twice it is as if made once."""

    def apply(self, connection: Connection) -> object:
        """Makes the change. The answer goes to whoever asked for it."""


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer of trajectories: what it wants, serialized, and up to where it acked."""

    name: str
    filter: bytes
    cursor: int


@dataclass(frozen=True, slots=True)
class OpenConsumer:
    """Keeps a consumer unless its name is known; `cursor` −1 means the present end."""

    consumer: Consumer

    def apply(self, connection: Connection) -> Consumer:
        """Returns the consumer as it is kept."""
        wanted, now = self.consumer, time.time()
        known = connection.execute(select(CONSUMERS).where(CONSUMERS.c.name == wanted.name)).first()
        if known is not None:
            connection.execute(update(CONSUMERS).where(CONSUMERS.c.name == wanted.name).values(used_at=now))
            return Consumer(known.name, known.filter, known.cursor)
        last = connection.execute(select(func.coalesce(func.max(RESULTS.c.number), 0))).scalar_one()
        kept = Consumer(wanted.name, wanted.filter, end_of(last) if wanted.cursor < 0 else wanted.cursor)
        row = {"name": kept.name, "filter": kept.filter, "cursor": kept.cursor, "used_at": now}
        connection.execute(insert(CONSUMERS).values(**row))
        return kept


@dataclass(frozen=True, slots=True)
class ForgetConsumer:
    """Drops a consumer."""

    name: str

    def apply(self, connection: Connection) -> None:
        """Idempotent."""
        connection.execute(delete(CONSUMERS).where(CONSUMERS.c.name == self.name))


@dataclass(frozen=True, slots=True)
class BuryTasks:
    """Remembers for an hour that tasks which are not known yet were cancelled."""

    task_ids: Sequence[str]
    until: float

    def apply(self, connection: Connection) -> None:
        """A later cancel prolongs the hour."""
        stale = (TOMBSTONES.c.expires_at < time.time()) | TOMBSTONES.c.task_id.in_(self.task_ids)
        connection.execute(delete(TOMBSTONES).where(stale))
        rows = [{"task_id": task_id, "expires_at": self.until} for task_id in self.task_ids]
        connection.execute(insert(TOMBSTONES), rows)


@dataclass(frozen=True, slots=True)
class Requeue:
    """Takes the results of dead letters back. `next_result`: no result before it may be numbered again."""

    letters: Sequence[DeadLetter]
    next_result: int

    def apply(self, connection: Connection) -> None:
        """The rollouts are open again; their groups complete anew."""
        numbers = [letter.result_number for letter in self.letters]
        tasks = sorted({letter.task_number for letter in self.letters})
        connection.execute(delete(RESULTS).where(RESULTS.c.number.in_(numbers)))
        connection.execute(delete(TRAJECTORIES).where(TRAJECTORIES.c.number.in_(numbers)))
        connection.execute(update(RESULTS).where(RESULTS.c.task_number.in_(tasks)).values(completes=False))
        connection.execute(update(TASKS).where(TASKS.c.number.in_(tasks)).values(open=True))
        blank = {"failures": 0, "lease_id": "", "node_id": "", "incarnation": ""}
        for letter in self.letters:
            place = {"task_number": letter.task_number, "place": letter.place}
            connection.execute(delete(ATTEMPTS).filter_by(**place))
            connection.execute(insert(ATTEMPTS).values(attempt=letter.attempt, **place, **blank))
        connection.execute(delete(COUNTERS).where(COUNTERS.c.name == "results"))
        connection.execute(insert(COUNTERS).values(name="results", value=self.next_result))


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A rollout whose attempts were used up."""

    task_number: int
    place: int
    attempt: int
    result_number: int
