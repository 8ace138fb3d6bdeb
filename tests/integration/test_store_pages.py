"""Pages of what is stored end at so many rows, and at so many bytes: a reader that stands still holds no more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from practicum.executor.store.batch import Batch
from practicum.executor.store.rows import JournalRow, ResultRow, TaskRow
from practicum.executor.store.sql import SqlStore

SIZE = 100
COUNT = 8


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStore]:
    """Eight tasks, their results and a journal, each of so many bytes."""
    path = str(tmp_path / "executor.db")
    store = SqlStore(path if request.param == "sqlite" else request.getfixturevalue("postgres_url"))
    asyncio.run(fill(store))
    yield store
    store.close()


async def fill(store: SqlStore) -> None:
    batch, body = Batch(), b"x" * SIZE
    tasks = [TaskRow(n, f"t{n}", "default", "{}", "", 1, 1.0, True, body) for n in range(1, COUNT + 1)]
    batch.add_tasks(tasks, lambda rows: None)
    for n in range(1, COUNT + 1):
        state = "dead" if n % 2 else "done"
        batch.end_rollout(ResultRow(n, n, 0, state, 1, "node", 1, 1.0, True, time.time(), SIZE), body)
        batch.messages.append(JournalRow("t1/0", n, f"m{n}", body))
    store.commit(batch)


@pytest.mark.parametrize(("max_bytes", "rows"), [(1, 1), (SIZE, 1), (SIZE + 1, 2), (3 * SIZE, 3), (10**9, 5)])
def test_a_page_ends_at_so_many_bytes(store: SqlStore, max_bytes: int, rows: int) -> None:
    """The first row is always there, or nobody would get on."""
    wanted = list(range(2, 2 + rows))
    assert [s for s, _ in store.journal("t1/0", 2, 5, max_bytes=max_bytes)] == wanted
    assert [r.number for r in store.results_after(2 * 1 + 1, 5, max_bytes=max_bytes)] == wanted
    newest = [t.number for t in store.tasks_before(COUNT, 5, max_bytes=max_bytes)]
    assert newest == list(range(COUNT - 1, COUNT - 1 - rows, -1))


def test_a_page_of_what_is_chosen_counts_only_that(store: SqlStore) -> None:
    """Rollouts by id, tasks by how a rollout ended."""
    ids = ["t2/0", "t5/0", "t7/0", "t8/0"]
    assert [r.number for r in store.results_after(0, 10, rollout_ids=ids, max_bytes=3 * SIZE)] == [2, 5, 7]
    assert [t.number for t in store.tasks_before(100, 10, states=["dead"], max_bytes=3 * SIZE)] == [7, 5, 3]


def test_pages_follow_each_other_to_the_end(store: SqlStore) -> None:
    """However few rows there are in each."""
    read, number = [], 0
    while page := store.journal("t1/0", number + 1, 5, max_bytes=SIZE + 1):
        read.append([sequence for sequence, _ in page])
        number = page[-1][0]
    assert read == [[1, 2], [3, 4], [5, 6], [7, 8]]
