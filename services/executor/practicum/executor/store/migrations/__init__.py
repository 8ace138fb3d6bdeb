"""Brings a database to the present form of `tables.py`, step by step.

After a change of `tables.py`, `alembic -c FILE upgrade head` and `alembic -c FILE revision --autogenerate --rev-id 0002
-m …` write a draft of the next step, where FILE says `[alembic]`, `script_location =
practicum.executor.store:migrations` and `sqlalchemy.url = …`, the URL of an empty database. HEAD names the last step.
"""

from __future__ import annotations

from pathlib import Path

import structlog
from sqlalchemy import Column, MetaData, String, Table, inspect, select
from sqlalchemy.engine import Connection

from practicum.executor.store.tables import METADATA

log = structlog.get_logger(__name__)

HEAD = "0001"
VERSION_TABLE = "executor_version"
VERSION = Table(VERSION_TABLE, MetaData(), Column("version_num", String, primary_key=True))


class SchemaRefused(Exception):
    """The database holds something that this version can't use; it was left as it is."""


def migrate(connection: Connection) -> None:
    """Makes the tables, or changes them to their present form, all or nothing. Raises SchemaRefused."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # The driver would begin no transaction for a CREATE TABLE.
    found = version_of(connection)
    if found == HEAD:
        return
    # Only now: the import takes longer than all else that a start with an up-to-date database does.
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).parent))
    command.upgrade(config, HEAD)
    log.info("database_migrated", before=found, after=HEAD)


def version_of(connection: Connection) -> str | None:
    """The step that the database is at; None when it is empty. Raises SchemaRefused."""
    names = set(inspect(connection).get_table_names())
    if VERSION_TABLE not in names:
        if strangers := sorted(names & METADATA.tables.keys()):
            raise SchemaRefused(f"its table {strangers[0]} was not made by this version of Practicum, or a later one")
        return None
    found = connection.execute(select(VERSION.c.version_num)).scalar()
    if found is not None and found > HEAD:
        raise SchemaRefused(f"a newer Practicum made it (form {found}, this one knows {HEAD}): start that one")
    return found
