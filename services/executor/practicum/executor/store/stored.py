"""What is read back, as others get it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy.engine import Row

from practicum.executor.store.labels import labels_of
from practicum.executor.store.results import Result

LAST_NUMBER = 2**62
"""Above that of every task and result."""
# What else is asked for is never looked for: PostgreSQL refuses text with a NUL.
ROLLOUT_ID = re.compile(r"([A-Za-z0-9._:-]{1,128})/(0|[1-9][0-9]{0,5})")


class StoredEnd(NamedTuple):
    """What came of a rollout."""

    place: int
    state: str
    attempt: int
    node_id: str
    outcome: int
    number: int


class StoredTask(NamedTuple):
    """A task with what came of its rollouts that ended."""

    number: int
    task_id: str
    queue: str
    labels: Mapping[str, str]
    traceparent: str
    rollouts: int
    submitted_at: float
    body: bytes
    ended: Sequence[StoredEnd]


def result_of(row: Row[Any]) -> Result:
    """A result from its row."""
    labels = labels_of(row.labels_json)
    group_size = row.rollouts if row.completes else 0
    rollout_id = f"{row.task_id}/{row.place}"
    return Result(row.number, row.task_id, rollout_id, row.queue, labels, row.outcome, row.reward, group_size, row.body)


def split(rollout_ids: Sequence[str]) -> list[tuple[str, int]]:
    """Task's id and place of rollouts; what is no rollout's id becomes one that nobody has."""
    found = map(ROLLOUT_ID.fullmatch, rollout_ids)
    return [(match[1], int(match[2])) if match else ("", -1) for match in found]
