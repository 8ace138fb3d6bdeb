"""What the executor remembers: tasks, attempts, results, trajectories, journals, consumers.

Methods block: call them in a thread. Only `commit` writes, and only the active executor may.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Select, func, select, tuple_
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import DatabaseError, OperationalError

from practicum.common.errors import ConfigError
from practicum.executor.store.batch import Batch
from practicum.executor.store.cursors import first_after
from practicum.executor.store.engine import lock_file, open_engine, parse_url
from practicum.executor.store.labels import labels_of
from practicum.executor.store.migrations import SchemaRefused, migrate
from practicum.executor.store.results import Result
from practicum.executor.store.rows import AttemptRow
from practicum.executor.store.statements import MAX_PARAMETERS, Statements
from practicum.executor.store.stored import StoredEnd, StoredTask, result_of, split
from practicum.executor.store.tables import (
    ATTEMPTS,
    CONSUMERS,
    COUNTERS,
    JOURNAL,
    RESULTS,
    TASKS,
    TOMBSTONES,
    TRAJECTORIES,
)

# A page has about so many bytes, however many rows it may have.
PAGE_BYTES = 4 * 1024 * 1024
ROWS_AT_ONCE = 16
# Results whose trajectory is kept.
STORED = RESULTS.join(TASKS, TASKS.c.number == RESULTS.c.task_number).join(
    TRAJECTORIES, TRAJECTORIES.c.number == RESULTS.c.number
)


class StoreFailed(Exception):
    """The database can't be written now: a full disk, a server that restarts.

    `uncertain`: it was cut off while it committed, and may have all of it. To give it the same again is right then.
    """

    def __init__(self, reason: str, *, uncertain: bool) -> None:
        super().__init__(reason)
        self.uncertain = uncertain


class SqlStore:
    """The store over SQLAlchemy, in an SQLite file or in PostgreSQL."""

    def __init__(
        self, database: str | Path, *, durability: str = "full", fence: Callable[[Connection], None] | None = None
    ) -> None:
        """Opens or makes it. `database`: a path, or PostgreSQL's URL. `durability`: see `open_engine`.

        `fence` runs first in each transaction that writes, and refuses it when another executor leads.
        """
        url = parse_url(str(database))
        sqlite = url.get_backend_name() == "sqlite"
        self._lock = lock_file(Path(str(url.database))) if sqlite else None
        self._engine = open_engine(url, durability)
        self._statements = Statements(self._engine.dialect)
        self._fence = fence or (lambda connection: None)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def commit(self, batch: Batch) -> list[Any]:
        """Writes a batch in one transaction. Returns what came of its changes after it is durable.

        Raises StoreFailed when the database can't be written now; its other errors mean that something is wrong in us.
        """
        committing = False
        try:
            with self._engine.begin() as connection:
                self._fence(connection)
                answers = batch.write(connection, self._statements)
                # SQLite knows what came of a commit; a server may die between the commit and its answer.
                committing = self._engine.dialect.name != "sqlite"
            return answers
        except OperationalError as error:
            raise StoreFailed(str(error.orig), uncertain=committing) from error
        except self._engine.dialect.loaded_dbapi.OperationalError as error:
            raise StoreFailed(str(error), uncertain=committing) from error

    def open_tasks(self) -> list[StoredTask]:
        """Tasks that have not ended, in order of submission."""
        return self._tasks(select(TASKS).where(TASKS.c.open).order_by(TASKS.c.number))

    def attempts(self) -> dict[tuple[int, int], AttemptRow]:
        """How far the rollouts are that began and have not ended, by task's number and place."""
        return {(row.task_number, row.place): AttemptRow(*tuple(row)) for row in self._rows(select(ATTEMPTS))}

    def last_numbers(self) -> tuple[int, int]:
        """The highest number that a task had, and a result."""
        (tasks,) = self._rows(select(func.coalesce(func.max(TASKS.c.number), 0)))[0]
        (results,) = self._rows(select(func.coalesce(func.max(RESULTS.c.number), 0)))[0]
        kept = self._rows(select(COUNTERS.c.value).where(COUNTERS.c.name == "results"))
        return tasks, max([results, *(row.value for row in kept)])

    def tombstones(self) -> dict[str, float]:
        """Tasks that were cancelled before they were submitted, with when that is forgotten; the oldest first."""
        query = select(TOMBSTONES).where(TOMBSTONES.c.expires_at > time.time()).order_by(TOMBSTONES.c.expires_at)
        return {row.task_id: row.expires_at for row in self._rows(query)}

    def results_after(
        self, cursor: int, limit: int, *, rollout_ids: Sequence[str] = (), max_bytes: int = PAGE_BYTES
    ) -> list[Result]:
        """Results of which something comes after a cursor, in order of completion; only of these rollouts if given.

        So many at most, and none after those that have so many bytes.
        """
        wanted = RESULTS.c.number >= first_after(cursor)
        if rollout_ids:
            wanted &= tuple_(TASKS.c.task_id, RESULTS.c.place).in_(split(rollout_ids))
        sizes = select(RESULTS.c.number, RESULTS.c.size_bytes).select_from(STORED).where(wanted)
        numbers = within(sizes.order_by(RESULTS.c.number).limit(limit), RESULTS.c.number, max_bytes)
        columns = (RESULTS, TASKS.c.task_id, TASKS.c.queue, TASKS.c.labels_json, TASKS.c.rollouts, TRAJECTORIES.c.body)
        query = select(*columns).select_from(STORED).where(RESULTS.c.number.in_(numbers)).order_by(RESULTS.c.number)
        return [result_of(row) for row in self._rows(query)]

    def known_bodies(self, task_ids: Sequence[str]) -> dict[str, bytes]:
        """The serialized Tasks of those ids that were ever accepted."""
        query = select(TASKS.c.task_id, TASKS.c.body).where(TASKS.c.task_id.in_(task_ids))
        return {row.task_id: row.body for row in self._rows(query)}

    def known_ids(self, task_ids: Sequence[str]) -> set[str]:
        """Those of these ids that were ever accepted."""
        return {row.task_id for row in self._rows(select(TASKS.c.task_id).where(TASKS.c.task_id.in_(task_ids)))}

    def stored_bytes(self) -> int:
        """Bytes of all trajectories that are stored."""
        stored = TRAJECTORIES.join(RESULTS, TRAJECTORIES.c.number == RESULTS.c.number)
        size = select(func.coalesce(func.sum(RESULTS.c.size_bytes), 0)).select_from(stored)
        return int(self._rows(size)[0][0])

    def tasks(self, task_ids: Sequence[str]) -> list[StoredTask]:
        """Those of these tasks that are known, in order of submission."""
        return self._tasks(select(TASKS).where(TASKS.c.task_id.in_(task_ids)).order_by(TASKS.c.number))

    def tasks_before(
        self, number: int, limit: int, *, states: Sequence[str] = (), max_bytes: int = PAGE_BYTES
    ) -> list[StoredTask]:
        """Tasks submitted before one, newest first; only those with a rollout that ended so, if states are given.

        So many at most, and none after those that have so many bytes.
        """
        sizes = select(TASKS.c.number, func.length(TASKS.c.body).label("size_bytes")).where(TASKS.c.number < number)
        if states:
            of_state = select(RESULTS.c.task_number).where(RESULTS.c.state.in_(states))
            sizes = sizes.where(TASKS.c.number.in_(of_state))
        numbers = within(sizes.order_by(TASKS.c.number.desc()).limit(limit), TASKS.c.number, max_bytes, rising=False)
        return self._tasks(select(TASKS).where(TASKS.c.number.in_(numbers)).order_by(TASKS.c.number.desc()))

    def journal(
        self, session_id: str, from_sequence: int, limit: int, *, max_bytes: int = PAGE_BYTES
    ) -> list[tuple[int, bytes]]:
        """Messages (sequence, serialized) of a session from a place on.

        So many at most, and none after those that have so many bytes.
        """
        query = (
            select(JOURNAL.c.sequence, JOURNAL.c.body)
            .where(JOURNAL.c.session_id == session_id, JOURNAL.c.sequence >= from_sequence)
            .order_by(JOURNAL.c.sequence)
            .limit(limit)
        )
        # A few rows at a time: to sum sizes first, as for the others, would triple what each watcher costs.
        options = {"stream_results": True, "max_row_buffer": ROWS_AT_ONCE}
        messages, left = [], max_bytes
        with self._engine.connect() as connection, connection.execute(query, execution_options=options) as rows:
            for sequence, body in rows:
                messages.append((sequence, body))
                left -= len(body)
                if left <= 0:
                    break
        return messages

    def spoken(self, session_ids: Sequence[str]) -> set[str]:
        """Those of these sessions in which something was said."""
        query = select(JOURNAL.c.session_id).where(JOURNAL.c.sequence == 1)
        return {
            row.session_id
            for start in range(0, len(session_ids), MAX_PARAMETERS)
            for row in self._rows(query.where(JOURNAL.c.session_id.in_(session_ids[start : start + MAX_PARAMETERS])))
        }

    def message_ids(self, session_id: str) -> dict[str, int]:
        """The messages of a session: id to sequence, in order."""
        query = select(JOURNAL.c.message_id, JOURNAL.c.sequence).where(JOURNAL.c.session_id == session_id)
        return {row.message_id: row.sequence for row in self._rows(query.order_by(JOURNAL.c.sequence))}

    def knows_session(self, session_id: str) -> bool:
        """Whether there is or was such a rollout."""
        ((task_id, place),) = split([session_id])
        rows = self._rows(select(TASKS.c.rollouts).where(TASKS.c.task_id == task_id))
        return bool(rows) and 0 <= place < rows[0].rollouts

    def consumers(self) -> dict[str, int]:
        """Up to where each consumer acked, by name."""
        return {row.name: row.cursor for row in self._rows(select(CONSUMERS.c.name, CONSUMERS.c.cursor))}

    def close(self) -> None:
        """Closes it."""
        self._engine.dispose()
        if self._lock is not None:
            self._lock.close()

    def _prepare(self) -> None:
        try:
            with self._engine.begin() as connection:
                self._fence(connection)
                migrate(connection)
        except (DatabaseError, SchemaRefused) as error:
            shown, wrong = self._engine.url.render_as_string(), getattr(error, "orig", error)
            raise ConfigError(f"--database {shown}: {wrong}; give another, or move this one away") from error

    def _rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        with self._engine.connect() as connection:
            return connection.execute(query).all()

    def _tasks(self, query: Select[Any]) -> list[StoredTask]:
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
            ended: dict[int, list[StoredEnd]] = {row.number: [] for row in rows}
            of = select(RESULTS).where(RESULTS.c.task_number.in_(query.with_only_columns(TASKS.c.number)))
            for r in connection.execute(of):
                end = StoredEnd(r.place, r.state, r.attempt, r.node_id, r.outcome, r.number)
                ended[r.task_number].append(end)
        # Unpacked rather than by name: a restart reads every open task.
        return [
            StoredTask(number, task_id, queue, labels_of(labels), trace, rollouts, at, body, ended[number])
            for number, task_id, queue, labels, trace, rollouts, at, _, body in rows
        ]


def within(sizes: Select[Any], key: Column[Any], max_bytes: int, *, rising: bool = True) -> Select[Any]:
    """The keys of a page's rows up to so many bytes, and always the first. `sizes`: keys and `size_bytes`, in order.

    Rows are counted before they are read: a page of large ones would fill the memory.
    """
    page = sizes.subquery()
    place = page.c[key.name]
    before = func.sum(page.c.size_bytes).over(order_by=place if rising else place.desc()) - page.c.size_bytes
    summed = select(place, before.label("before")).subquery()
    return select(summed.c[key.name]).where(summed.c.before < max_bytes)
