"""What the executor remembers, in one SQLite file: tasks, rollouts, journals, trajectories, consumers.

Methods block: call them in a thread. Only `commit` writes, and only one process may have the file open.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Select, create_engine, event, func, select
from sqlalchemy.engine import Engine, Row
from sqlalchemy.exc import DatabaseError

from practicum.common.errors import ConfigError
from practicum.executor.changes import Change
from practicum.executor.tables import EVENTS, JOURNAL, METADATA, ROLLOUTS, TASKS


@dataclass(frozen=True, slots=True)
class StoredRollout:
    """A rollout that had not ended when the executor stopped, with its serialized Task."""

    rollout_id: str
    task_id: str
    attempt: int
    lease_id: str
    node_id: str
    incarnation: str
    task: bytes


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """Something that consumers are told: a serialized Trajectory, or a GroupComplete (`rollout_id` empty)."""

    cursor: int
    rollout_id: str
    queue: str
    labels: Mapping[str, str]
    outcome: int
    reward: float
    body: bytes


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task with how its rollouts stand (id, state, attempt, node, outcome)."""

    number: int
    body: bytes
    labels: Mapping[str, str]
    submitted_at: float
    rollouts: Sequence[tuple[str, str, int, str, int]]


class SqlStore:
    """The store over SQLAlchemy Core."""

    def __init__(self, path: Path, *, durability: str = "full") -> None:
        """Opens or makes the file. `durability`: `full` (the disk has it) or `process` (a kill -9 loses nothing)."""
        self._lock = lock(path)
        self._engine: Engine = create_engine(f"sqlite:///{path}")
        synchronous = {"full": "FULL", "process": "NORMAL"}[durability]

        @event.listens_for(self._engine, "connect")
        def configure(connection, record) -> None:  # type: ignore[no-untyped-def]
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA synchronous={synchronous}")

        try:
            METADATA.create_all(self._engine)
        except DatabaseError as error:
            self.close()
            raise ConfigError(f"--database {path}: {error.orig}; give another file, or move this one away") from error

    def commit(self, changes: Iterable[Change]) -> list[object]:
        """Makes changes in one transaction, and returns what came of each after they are on disk."""
        with self._engine.begin() as connection:
            return [change.apply(connection) for change in changes]

    def unfinished(self) -> list[StoredRollout]:
        """What has to be scheduled again after a restart, in order of submission."""
        columns = ("rollout_id", "task_id", "attempt", "lease_id", "node_id", "incarnation")
        query = (
            select(*(ROLLOUTS.c[name] for name in columns), TASKS.c.body)
            .join(TASKS, TASKS.c.task_id == ROLLOUTS.c.task_id)
            .where(ROLLOUTS.c.state == "open")
            .order_by(ROLLOUTS.c.number)
        )
        return [StoredRollout(*tuple(row)) for row in self._rows(query)]

    def events_after(self, cursor: int, limit: int, *, rollout_ids: Sequence[str] = ()) -> list[StoredEvent]:
        """Events after a cursor, in order of completion; only of these rollouts when some are given."""
        query = (
            select(EVENTS, TASKS.c.queue, TASKS.c.labels_json)
            .join(TASKS, TASKS.c.task_id == EVENTS.c.task_id)
            .where(EVENTS.c.cursor > cursor)
            .order_by(EVENTS.c.cursor)
            .limit(limit)
        )
        if rollout_ids:
            query = query.where(EVENTS.c.rollout_id.in_(rollout_ids))
        return [stored_event(row) for row in self._rows(query)]

    def known_tasks(self, task_ids: Sequence[str]) -> set[str]:
        """Those of these tasks that were ever accepted."""
        return {row.task_id for row in self._rows(select(TASKS.c.task_id).where(TASKS.c.task_id.in_(task_ids)))}

    def task(self, task_id: str) -> StoredTask | None:
        """One task."""
        rows = self._rows(select(TASKS).where(TASKS.c.task_id == task_id))
        return self._with_rollouts(rows)[0] if rows else None

    def tasks_before(self, number: int, limit: int) -> list[StoredTask]:
        """Tasks submitted before one, newest first."""
        query = select(TASKS).where(TASKS.c.number < number).order_by(TASKS.c.number.desc()).limit(limit)
        return self._with_rollouts(self._rows(query))

    def journal(self, session_id: str, from_sequence: int, limit: int) -> list[tuple[int, bytes]]:
        """Messages (sequence, serialized) of a session from a place on."""
        query = (
            select(JOURNAL.c.sequence, JOURNAL.c.body)
            .where(JOURNAL.c.session_id == session_id, JOURNAL.c.sequence >= from_sequence)
            .order_by(JOURNAL.c.sequence)
            .limit(limit)
        )
        return [(row.sequence, row.body) for row in self._rows(query)]

    def journal_ends(self, session_ids: Sequence[str]) -> dict[str, int]:
        """The last sequence of each session that has a journal."""
        query = select(JOURNAL.c.session_id, func.max(JOURNAL.c.sequence).label("end"))
        rows = self._rows(query.where(JOURNAL.c.session_id.in_(session_ids)).group_by(JOURNAL.c.session_id))
        return {row.session_id: row.end for row in rows}

    def message_ids(self, session_id: str) -> set[str]:
        """The ids of a session's messages."""
        query = select(JOURNAL.c.message_id).where(JOURNAL.c.session_id == session_id)
        return {row.message_id for row in self._rows(query)}

    def knows_session(self, session_id: str) -> bool:
        """Whether there is or was such a rollout."""
        return bool(self._rows(select(ROLLOUTS.c.number).where(ROLLOUTS.c.rollout_id == session_id)))

    def close(self) -> None:
        """Closes the file."""
        self._engine.dispose()
        self._lock.close()

    def _rows(self, query: Select[Any]) -> list[Row[Any]]:
        with self._engine.connect() as connection:
            return list(connection.execute(query))

    def _with_rollouts(self, rows: Sequence[Row[Any]]) -> list[StoredTask]:
        ids = [row.task_id for row in rows]
        query = select(ROLLOUTS).where(ROLLOUTS.c.task_id.in_(ids)).order_by(ROLLOUTS.c.number)
        of: dict[str, list[tuple[str, str, int, str, int]]] = {task_id: [] for task_id in ids}
        for r in self._rows(query):
            of[r.task_id].append((r.rollout_id, r.state, r.attempt, r.node_id, r.outcome))
        return [
            StoredTask(row.number, row.body, json.loads(row.labels_json), row.submitted_at, of[row.task_id])
            for row in rows
        ]


def stored_event(row: Row[Any]) -> StoredEvent:
    """An event from its row."""
    labels = json.loads(row.labels_json)
    return StoredEvent(row.cursor, row.rollout_id or "", row.queue, labels, row.outcome, row.reward, row.body)


def lock(path: Path) -> Any:
    """Holds a lock beside the file: two executors on one store would both give out its work."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.with_name(path.name + ".lock").open("w")
    except OSError as error:
        raise ConfigError(f"--database {path}: {error.strerror or error}; give a file in a folder of yours") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        handle.close()
        raise ConfigError(f"--database {path}: another executor has it open; stop that one, or give another") from error
    return handle
