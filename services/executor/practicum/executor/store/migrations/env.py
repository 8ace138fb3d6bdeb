"""What Alembic runs: within the transaction of `migrate`, or on a URL from its own command line."""

from __future__ import annotations

from alembic import context
from sqlalchemy import create_engine
from sqlalchemy.engine import Connection

from practicum.executor.store.migrations import VERSION_TABLE
from practicum.executor.store.tables import METADATA


def run(connection: Connection) -> None:
    """Makes the steps that are missing."""
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        version_table=VERSION_TABLE,
        # `leadership` and what else lives beside our tables is none of the migrations' business.
        include_name=lambda name, kind, parents: kind != "table" or name in METADATA.tables,
        render_as_batch=True,
    )
    context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    with create_engine(context.config.get_main_option("sqlalchemy.url", "")).begin() as opened:
        run(opened)
