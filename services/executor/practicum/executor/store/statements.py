"""The statements of the hot path, compiled once for a database; they go to the driver's cursor as they are.

One execution writes many rows. SQLite's module lets other threads run in each, and has to wait for its turn after it:
with a busy event loop beside, a row took 4.8 ms by `executemany` and 0.07 ms so; 5.5 and 3.4 µs of CPU alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, takewhile
from typing import Any

from sqlalchemy import BindParameter, Table, and_, bindparam, delete, false, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection
from sqlalchemy.engine.interfaces import DBAPICursor, Dialect
from sqlalchemy.sql import ClauseElement

from practicum.executor.store.tables import ATTEMPTS, CONSUMERS, JOURNAL, RESULTS, TASKS, TRAJECTORIES

INSERTS: Mapping[str, Callable[[Table], sqlite.Insert | postgresql.Insert]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}

MAX_PARAMETERS = 10_000
"""Of one statement; SQLite takes 32,766."""
MAX_ROWS = 256
"""Of one execution: a power of two."""

Row = tuple[Any, ...]


class Many:
    """A statement for any number of rows, in executions of a few sizes, so that the driver knows each already."""

    def __init__(self, one: str, two: str) -> None:
        """The statement for one row, and for two. What the second has more is what each further row takes: to have
        SQLAlchemy write them out for 256 rows took a third of a second."""
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))
        self._begin, self._end = one[:same], one[same:]
        self._further = two[same : len(two) - len(self._end)]
        self._texts: dict[int, str] = {}

    def text(self, rows: int) -> str:
        """The statement for so many rows."""
        if rows not in self._texts:
            self._texts[rows] = self._begin + self._further * (rows - 1) + self._end
        return self._texts[rows]

    def execute(self, cursor: DBAPICursor, rows: Sequence[Row]) -> int:
        """Returns how many rows were changed."""
        start = changed = 0
        while start < len(rows):
            size = min(1 << ((len(rows) - start).bit_length() - 1), MAX_ROWS)
            cursor.execute(self.text(size), tuple(chain.from_iterable(rows[start : start + size])))
            changed += cursor.rowcount
            start += size
        return changed


class Statements:
    """What a batch writes. Repeating a batch changes nothing: nobody knows what came of a commit that was cut off."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.add_tasks = self._many(lambda count: self._insert(TASKS, count))
        self.add_results = self._many(lambda count: self._insert(RESULTS, count))
        self.add_trajectories = self._many(lambda count: self._insert(TRAJECTORIES, count))
        self.add_messages = self._many(lambda count: self._insert(JOURNAL, count))
        self.put_attempts = self._many(self._put_attempts)
        self.drop_attempts = self._many(drop_attempts)
        self.close_tasks = self._many(close_tasks)
        moved = update(CONSUMERS).values(cursor=bindparam("to"), used_at=bindparam("at"))
        self.move_consumers = self._text(moved.where(CONSUMERS.c.name == bindparam("of")))

    def known_tasks(self, connection: Connection, task_ids: Sequence[str]) -> list[tuple[str, int, bytes]]:
        """Ids, numbers and serialized Tasks of those that are known."""
        query = select(TASKS.c.task_id, TASKS.c.number, TASKS.c.body)
        return [
            (row.task_id, row.number, row.body)
            for start in range(0, len(task_ids), MAX_PARAMETERS)
            for row in connection.execute(query.where(TASKS.c.task_id.in_(task_ids[start : start + MAX_PARAMETERS])))
        ]

    def _insert(self, table: Table, count: int) -> ClauseElement:
        return self._values(table, count).on_conflict_do_nothing()

    def _put_attempts(self, count: int) -> ClauseElement:
        statement, key = self._values(ATTEMPTS, count), list(ATTEMPTS.primary_key)
        changed = {column.name: statement.excluded[column.name] for column in ATTEMPTS.columns if column not in key}
        return statement.on_conflict_do_update(index_elements=key, set_=changed)

    def _values(self, table: Table, count: int) -> sqlite.Insert | postgresql.Insert:
        rows = [{column.name: nth(column.name, row) for column in table.columns} for row in range(count)]
        return INSERTS[self._dialect.name](table).values(rows)

    def _many(self, statement_of: Callable[[int], ClauseElement]) -> Many:
        return Many(self._text(statement_of(1)), self._text(statement_of(2)))

    def _text(self, statement: ClauseElement) -> str:
        return str(statement.compile(dialect=self._dialect))


def drop_attempts(count: int) -> ClauseElement:
    """By keys: SQLite would look through the whole table for `(task_number, place) IN …`."""
    number, place = ATTEMPTS.c.task_number, ATTEMPTS.c.place
    return delete(ATTEMPTS).where(
        or_(*(and_(number == nth("number", row), place == nth("place", row)) for row in range(count)))
    )


def close_tasks(count: int) -> ClauseElement:
    """By numbers."""
    wanted = or_(*(TASKS.c.number == nth("number", row) for row in range(count)))
    return update(TASKS).where(wanted).values(open=false())


def nth(name: str, row: int) -> BindParameter[Any]:
    """A value that a row gives."""
    return bindparam(f"{name}_{row}")
