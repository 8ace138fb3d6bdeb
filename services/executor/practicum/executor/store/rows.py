"""The rows that the hot path writes, as tuples in the order of their tables' columns."""

from __future__ import annotations

from typing import NamedTuple


class TaskRow(NamedTuple):
    """A task that was accepted; `body` is the serialized Task."""

    number: int
    task_id: str
    queue: str
    labels_json: str
    traceparent: str
    rollouts: int
    submitted_at: float
    open: bool
    body: bytes


class AttemptRow(NamedTuple):
    """A rollout that began: its last attempt, and its lease unless it waits for its next attempt."""

    task_number: int
    place: int
    attempt: int
    failures: int
    lease_id: str = ""
    node_id: str = ""
    incarnation: str = ""


class ResultRow(NamedTuple):
    """A rollout that ended."""

    number: int
    task_number: int
    place: int
    state: str
    attempt: int
    node_id: str
    outcome: int
    reward: float
    completes: bool
    ended_at: float
    size_bytes: int


class TrajectoryRow(NamedTuple):
    """The serialized Trajectory of the result with this number."""

    number: int
    body: bytes


class JournalRow(NamedTuple):
    """A serialized Message at its place in a session's journal."""

    session_id: str
    sequence: int
    message_id: str
    body: bytes
