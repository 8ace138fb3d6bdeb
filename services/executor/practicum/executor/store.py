"""What the executor remembers: tasks, rollouts, journals and trajectories, in one SQLite file.

Every method is one transaction and returns after it is on disk. Methods block: call them in a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import (
    Column,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.engine import Engine

METADATA = MetaData()
TASKS = Table(
    "tasks",
    METADATA,
    Column("task_id", String, primary_key=True),
    Column("body", LargeBinary, nullable=False),
)
ROLLOUTS = Table(
    "rollouts",
    METADATA,
    Column("rollout_id", String, primary_key=True),
    Column("task_id", String, nullable=False, index=True),
    Column("state", String, nullable=False),
    Column("attempt", Integer, nullable=False),
)
TRAJECTORIES = Table(
    "trajectories",
    METADATA,
    Column("cursor", Integer, primary_key=True, autoincrement=True),
    Column("rollout_id", String, nullable=False, unique=True),
    Column("body", LargeBinary, nullable=False),
)


@dataclass(frozen=True, slots=True)
class StoredRollout:
    """A rollout that had not ended when the executor stopped, with its serialized Task."""

    rollout_id: str
    task_id: str
    attempt: int
    task: bytes


class SqlStore:
    """The store over SQLAlchemy Core."""

    def __init__(self, path: Path, *, durability: str = "full") -> None:
        """Opens or makes the file. `durability`: `full` (the disk has it) or `process` (a kill -9 loses nothing)."""
        self._engine: Engine = create_engine(f"sqlite:///{path}")
        synchronous = {"full": "FULL", "process": "NORMAL"}[durability]

        @event.listens_for(self._engine, "connect")
        def configure(connection, record) -> None:  # type: ignore[no-untyped-def]
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA synchronous={synchronous}")

        METADATA.create_all(self._engine)

    def tasks(self, task_ids: Sequence[str]) -> dict[str, bytes]:
        """The serialized Tasks of those ids that are known."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(TASKS).where(TASKS.c.task_id.in_(task_ids)))
            return {row.task_id: row.body for row in rows}

    def add(self, tasks: Iterable[tuple[str, bytes]], rollouts: Iterable[tuple[str, str]]) -> None:
        """Keeps tasks (id, body) and their rollouts (id, task id) as queued."""
        with self._engine.begin() as connection:
            connection.execute(insert(TASKS), [{"task_id": i, "body": body} for i, body in tasks])
            rows = [{"rollout_id": r, "task_id": t, "state": "queued", "attempt": 0} for r, t in rollouts]
            connection.execute(insert(ROLLOUTS), rows)

    def start_attempts(self, attempts: Iterable[tuple[str, int]]) -> None:
        """Notes that attempts (rollout id, number) began, so that a restart counts them."""
        with self._engine.begin() as connection:
            for rollout_id, attempt in attempts:
                connection.execute(
                    update(ROLLOUTS)
                    .where(ROLLOUTS.c.rollout_id == rollout_id, ROLLOUTS.c.state == "queued")
                    .values(attempt=attempt)
                )

    def end(self, results: Iterable[tuple[str, str, bytes]]) -> list[str]:
        """Keeps results (rollout id, final state, serialized Trajectory). Returns the ids that had not ended before."""
        kept: list[str] = []
        with self._engine.begin() as connection:
            for rollout_id, state, body in results:
                changed = connection.execute(
                    update(ROLLOUTS)
                    .where(ROLLOUTS.c.rollout_id == rollout_id, ROLLOUTS.c.state == "queued")
                    .values(state=state)
                )
                if changed.rowcount:
                    connection.execute(insert(TRAJECTORIES), [{"rollout_id": rollout_id, "body": body}])
                    kept.append(rollout_id)
        return kept

    def unfinished(self) -> list[StoredRollout]:
        """What has to be scheduled again after a restart, in order of submission."""
        query = (
            select(ROLLOUTS.c.rollout_id, ROLLOUTS.c.task_id, ROLLOUTS.c.attempt, TASKS.c.body)
            .join(TASKS, TASKS.c.task_id == ROLLOUTS.c.task_id)
            .where(ROLLOUTS.c.state == "queued")
            .order_by(literal_column("rollouts.rowid"))
        )
        with self._engine.connect() as connection:
            return [StoredRollout(r.rollout_id, r.task_id, r.attempt, r.body) for r in connection.execute(query)]

    def trajectories_after(self, cursor: int, limit: int) -> list[tuple[int, bytes]]:
        """Trajectories (cursor, body) after a cursor, in order of completion."""
        query = select(TRAJECTORIES.c.cursor, TRAJECTORIES.c.body).where(TRAJECTORIES.c.cursor > cursor)
        with self._engine.connect() as connection:
            rows = connection.execute(query.order_by(TRAJECTORIES.c.cursor).limit(limit))
            return [(row.cursor, row.body) for row in rows]

    def close(self) -> None:
        """Closes the file."""
        self._engine.dispose()
