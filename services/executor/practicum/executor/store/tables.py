"""The tables of the store.

Numbers of tasks and results are made by the one active executor: they rise, and a result's number is its place in the
order of completion. Rows that change often are small: trajectories are written once, to a table of their own.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)

METADATA = MetaData()
# SQLite grows its key by itself only for this very type.
Number = BigInteger().with_variant(Integer, "sqlite")

# `open` until the last of its rollouts ended. The rollouts of a task are numbered by their `place` from 0.
TASKS = Table(
    "tasks",
    METADATA,
    Column("number", Number, primary_key=True, autoincrement=False),
    Column("task_id", String, nullable=False, unique=True),
    Column("queue", String, nullable=False),
    Column("labels_json", String, nullable=False),
    Column("traceparent", String, nullable=False),
    Column("rollouts", Integer, nullable=False),
    Column("submitted_at", Float, nullable=False),
    Column("open", Boolean, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
Index("tasks_open", TASKS.c.number, sqlite_where=TASKS.c.open, postgresql_where=TASKS.c.open)
# Rollouts that began and have not ended: the last attempt, and while a node has it the lease, so that the node goes on
# over a restart of the executor. `failures` count against the task's attempts.
ATTEMPTS = Table(
    "attempts",
    METADATA,
    Column("task_number", Number, primary_key=True, autoincrement=False),
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("lease_id", String, nullable=False),
    Column("node_id", String, nullable=False),
    Column("incarnation", String, nullable=False),
)
# Rollouts that ended, in order of completion, as `done`, `cancelled` or `dead`. `completes`: it was its group's last.
RESULTS = Table(
    "results",
    METADATA,
    Column("number", Number, primary_key=True, autoincrement=False),
    Column("task_number", Number, nullable=False),
    Column("place", Integer, nullable=False),
    Column("state", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("node_id", String, nullable=False),
    Column("outcome", Integer, nullable=False),
    Column("reward", Float, nullable=False),
    Column("completes", Boolean, nullable=False),
    Column("ended_at", Float, nullable=False),
    Column("size_bytes", Integer, nullable=False),
    UniqueConstraint("task_number", "place"),
)
# Serialized Trajectories by their result's number. Retention takes them; the result stays.
TRAJECTORIES = Table(
    "trajectories",
    METADATA,
    Column("number", Number, primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
)
JOURNAL = Table(
    "journal",
    METADATA,
    Column("session_id", String, primary_key=True),
    Column("sequence", Integer, primary_key=True),
    Column("message_id", String, nullable=False),
    Column("body", LargeBinary, nullable=False),
    UniqueConstraint("session_id", "message_id"),
)
# `used_at`: when it was last opened or acked, for forgetting names that nobody uses.
CONSUMERS = Table(
    "consumers",
    METADATA,
    Column("name", String, primary_key=True),
    Column("filter", LargeBinary, nullable=False),
    Column("cursor", Number, nullable=False),
    Column("used_at", Float, nullable=False),
)
TOMBSTONES = Table(
    "tombstones",
    METADATA,
    Column("task_id", String, primary_key=True),
    Column("expires_at", Float, nullable=False),
)
# Numbers that may not be used again though their rows are gone.
COUNTERS = Table(
    "counters",
    METADATA,
    Column("name", String, primary_key=True),
    Column("value", Number, nullable=False),
)
