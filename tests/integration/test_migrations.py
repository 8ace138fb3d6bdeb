"""Migrations of the executor's store, on both databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, Table, create_engine, inspect, text, update
from sqlalchemy.engine.interfaces import ReflectedIndex
from support.postgres import Postgres

from practicum.common.errors import ConfigError
from practicum.executor.store import migrations
from practicum.executor.store.migrations import HEAD, VERSION, VERSION_TABLE, migrate
from practicum.executor.store.sql import SqlStore
from practicum.executor.store.tables import METADATA

NewDatabase = Callable[[], str]


@pytest.fixture(params=["sqlite", "postgresql"])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> NewDatabase:
    """Gives URLs of empty databases."""
    if request.param == "sqlite":
        numbers = count()
        return lambda: f"sqlite:///{tmp_path / f'executor-{next(numbers)}.db'}"
    postgres: Postgres = request.getfixturevalue("postgres")
    return postgres.new_database


@pytest.fixture
def database(new_database: NewDatabase) -> str:
    """The URL of an empty database."""
    return new_database()


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    engine = create_engine(database)
    yield engine
    engine.dispose()


def test_migrations_make_the_tables_as_they_are_declared(engine: Engine, new_database: NewDatabase) -> None:
    """Whoever changes a table writes a migration."""
    with engine.begin() as connection:
        migrate(connection)
        options = {
            "version_table": VERSION_TABLE,
            "compare_server_default": True,
            "include_name": lambda name, kind, parents: kind != "table" or name != VERSION_TABLE,
        }
        assert compare_metadata(MigrationContext.configure(connection, opts=options), METADATA) == []
    declared = create_engine(new_database())
    METADATA.create_all(declared)
    expected = form_of(declared)
    declared.dispose()
    assert form_of(engine) == expected


def form_of(engine: Engine) -> dict[str, list[str]]:
    """All that the database tells of our tables; Alembic's comparison knows nothing of keys."""
    inspector = inspect(engine)
    return {
        name: [
            *(f"{c['name']} {c['type']} {c['nullable']} {c['default']}" for c in inspector.get_columns(name)),
            str(inspector.get_pk_constraint(name)["constrained_columns"]),
            *sorted(str(unique["column_names"]) for unique in inspector.get_unique_constraints(name)),
            *sorted(f"{i['name']} {i['column_names']} {predicate_of(i)}" for i in inspector.get_indexes(name)),
        ]
        for name in METADATA.tables
    }


def predicate_of(index: ReflectedIndex) -> list[str]:
    """What rows an index holds."""
    return [str(value) for name, value in index.get("dialect_options", {}).items() if name.endswith("_where")]


def test_a_migrated_database_is_left_alone(engine: Engine) -> None:
    """A restart changes nothing."""
    for _ in range(2):
        with engine.begin() as connection:
            migrate(connection)
            assert connection.execute(VERSION.select()).scalar_one() == HEAD


def test_the_last_step_is_the_head() -> None:
    """A start compares with it."""
    assert ScriptDirectory(str(Path(migrations.__file__).parent)).get_current_head() == HEAD


def test_a_migration_that_is_cut_off_leaves_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start finds an empty database, not half a store."""
    create = Operations.create_table

    def fail(self: Operations, name: str, *columns: object, **options: object) -> Table:
        if name == "results":
            raise KeyboardInterrupt
        return create(self, name, *columns, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Operations, "create_table", fail)
        with pytest.raises(KeyboardInterrupt), engine.begin() as connection:
            migrate(connection)
    assert inspect(engine).get_table_names() == []
    with engine.begin() as connection:
        migrate(connection)


def test_a_database_of_a_newer_version_is_refused(engine: Engine, database: str) -> None:
    """It might be read wrongly."""
    SqlStore(database).close()
    with engine.begin() as connection:
        connection.execute(update(VERSION).values(version_num="9999"))
    with pytest.raises(ConfigError, match="a newer Practicum made it \\(form 9999, this one knows 0001\\)"):
        SqlStore(database)


def test_a_database_of_another_form_is_refused_and_left_as_it_is(engine: Engine, database: str) -> None:
    """Such as one of a version before there were migrations."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE tasks (number integer PRIMARY KEY)"))
    with pytest.raises(ConfigError, match="its table tasks was not made by"):
        SqlStore(database)
    assert inspect(engine).get_table_names() == ["tasks"]


def test_other_tables_do_not_matter(engine: Engine, database: str) -> None:
    """A database may be shared."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num varchar(32))"))
    SqlStore(database).close()
    assert {"alembic_version", "tasks", VERSION_TABLE} <= set(inspect(engine).get_table_names())
