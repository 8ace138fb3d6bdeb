"""Makes the tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Makes the step."""
    make_tasks()
    make_results()
    make_the_rest()


def make_tasks() -> None:
    """Tasks, and how far their rollouts are."""
    op.create_table(
        "tasks",
        sa.Column("number", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("task_id", sa.String(), nullable=False, unique=True),
        sa.Column("queue", sa.String(), nullable=False),
        sa.Column("labels_json", sa.String(), nullable=False),
        sa.Column("traceparent", sa.String(), nullable=False),
        sa.Column("rollouts", sa.Integer(), nullable=False),
        sa.Column("submitted_at", sa.Float(), nullable=False),
        sa.Column("open", sa.Boolean(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
    )
    op.create_index("tasks_open", "tasks", ["number"], sqlite_where=sa.text("open"), postgresql_where=sa.text("open"))
    op.create_table(
        "attempts",
        sa.Column("task_number", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("place", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("lease_id", sa.String(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("incarnation", sa.String(), nullable=False),
    )


def make_results() -> None:
    """Results, and their trajectories."""
    op.create_table(
        "results",
        sa.Column("number", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("task_number", NUMBER, nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("outcome", sa.Integer(), nullable=False),
        sa.Column("reward", sa.Float(), nullable=False),
        sa.Column("completes", sa.Boolean(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.UniqueConstraint("task_number", "place"),
    )
    op.create_table(
        "trajectories",
        sa.Column("number", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
    )


def make_the_rest() -> None:
    """Journals, consumers, and what is remembered besides."""
    op.create_table(
        "journal",
        sa.Column("session_id", sa.String(), primary_key=True),
        sa.Column("sequence", sa.Integer(), primary_key=True),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.UniqueConstraint("session_id", "message_id"),
    )
    op.create_table(
        "consumers",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("filter", sa.LargeBinary(), nullable=False),
        sa.Column("cursor", NUMBER, nullable=False),
        sa.Column("used_at", sa.Float(), nullable=False),
    )
    op.create_table(
        "tombstones",
        sa.Column("task_id", sa.String(), primary_key=True),
        sa.Column("expires_at", sa.Float(), nullable=False),
    )
    op.create_table(
        "counters",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("value", NUMBER, nullable=False),
    )
