"""The tables of the store."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Integer, LargeBinary, MetaData, String, Table, UniqueConstraint

METADATA = MetaData()
TASKS = Table(
    "tasks",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("task_id", String, nullable=False, unique=True),
    Column("queue", String, nullable=False),
    Column("labels_json", String, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("submitted_at", Float, nullable=False),
)
# `state` is `open` until the rollout ends as `done`, `cancelled` or `dead`. The lease's columns say who has
# it, so that a node goes on over a restart of the executor.
ROLLOUTS = Table(
    "rollouts",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("rollout_id", String, nullable=False, unique=True),
    Column("task_id", String, nullable=False, index=True),
    Column("state", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("outcome", Integer, nullable=False),
    Column("lease_id", String, nullable=False),
    Column("node_id", String, nullable=False),
    Column("incarnation", String, nullable=False),
    Index("rollouts_state", "state"),
)
# What consumers are told, in order of completion: trajectories, and the completion of groups (`rollout_id` is null).
EVENTS = Table(
    "events",
    METADATA,
    Column("cursor", Integer, primary_key=True, autoincrement=True),
    Column("task_id", String, nullable=False),
    Column("rollout_id", String, unique=True),
    Column("outcome", Integer, nullable=False),
    Column("reward", Float, nullable=False),
    Column("body", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
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
CONSUMERS = Table(
    "consumers",
    METADATA,
    Column("name", String, primary_key=True),
    Column("filter", LargeBinary, nullable=False),
    Column("cursor", Integer, nullable=False),
)
TOMBSTONES = Table(
    "tombstones",
    METADATA,
    Column("task_id", String, primary_key=True),
    Column("expires_at", Float, nullable=False),
)
