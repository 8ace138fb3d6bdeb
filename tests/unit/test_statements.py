"""Statements of many rows are those that SQLAlchemy writes."""

from __future__ import annotations

import pytest
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.engine.interfaces import Dialect

from practicum.executor.store.statements import MAX_ROWS, Statements, close_tasks, drop_attempts
from practicum.executor.store.tables import RESULTS

DIALECTS = [sqlite.dialect(), psycopg.PGDialect_psycopg(paramstyle="format")]


@pytest.mark.parametrize("dialect", DIALECTS, ids=["sqlite", "postgresql"])
@pytest.mark.parametrize("rows", [1, 2, 3, 64, MAX_ROWS])
def test_the_text_for_so_many_rows_is_the_compilers(dialect: Dialect, rows: int) -> None:
    """Whatever stands between the rows, before them and after them."""
    statements = Statements(dialect)
    pairs = (
        (statements.drop_attempts, drop_attempts(rows)),
        (statements.close_tasks, close_tasks(rows)),
        (statements.put_attempts, statements._put_attempts(rows)),
        (statements.add_results, statements._insert(RESULTS, rows)),
    )
    for many, statement in pairs:
        assert many.text(rows) == str(statement.compile(dialect=dialect))
