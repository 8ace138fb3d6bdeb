"""Tasks in pages: an executor within the test, on a real store that tells what is read of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.executor_door import task

from practicum.executor.core import Executor
from practicum.executor.observing.listing import MAX_PAGE_BYTES, list_tasks
from practicum.executor.store.sql import SqlStore
from practicum.executor.store.stored import StoredTask
from practicum.v1 import executor_pb2

LARGE = "x" * 1_000_000


class CountingStore(SqlStore):
    """Counts tasks that are read for lists."""

    rows = 0

    def tasks_before(self, number: int, limit: int, *, states: Sequence[str] = (), **more: int) -> list[StoredTask]:
        """See SqlStore."""
        found = super().tasks_before(number, limit, states=states, **more)
        self.rows += len(found)
        return found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CountingStore]:
    store = CountingStore(tmp_path / "executor.db")
    yield store
    store.close()


async def pages(executor: Executor, **asked: object) -> list[list[str]]:
    """The ids of all pages."""
    request, found = executor_pb2.ListTasksRequest(**asked), []  # type: ignore[arg-type]
    while True:
        page = await list_tasks(executor, request)
        assert len(page.tasks) == 1 or page.ByteSize() <= MAX_PAGE_BYTES + 100
        found.append([status.task.id for status in page.tasks])
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def test_a_page_of_large_tasks_ends_before_it_is_too_large_to_send(store: CountingStore) -> None:
    """The next token goes on after it. A task that is too large alone is a page of its own."""
    executor = Executor(store)
    async with executor.running():
        large = [task(f"t{n}", labels={"of": "n"}, metadata_json=f'{{"a": "{LARGE}"}}') for n in range(3)]
        largest = task("t3", metadata_json=f'{{"a": "{LARGE * 3}"}}')
        await executor.submit([*large, largest, task("t4")])
        assert await pages(executor) == [["t4"], ["t3"], ["t2", "t1"], ["t0"]]
        assert await pages(executor, labels={"of": "n"}) == [["t2", "t1"], ["t0"]]


async def test_a_small_page_reads_little(store: CountingStore) -> None:
    """One task more than it shows, to know whether there is a next page."""
    executor = Executor(store)
    async with executor.running():
        await executor.submit([task(f"t{n:03}") for n in range(300)])
        await list_tasks(executor, executor_pb2.ListTasksRequest(page_size=1))
        assert store.rows == 2


async def test_what_is_seldom_is_found_among_many(store: CountingStore) -> None:
    """By label and by state: all tasks are read, each once for all pages, and one more for each."""
    executor = Executor(store)
    async with executor.running():
        await executor.submit([task(f"t{n:03}", labels={"tens": str(n % 100 == 0)}) for n in range(300)])
        assert await pages(executor, labels={"tens": "True"}, page_size=2) == [["t200", "t100"], ["t000"]]
        await executor.cancel(["t007", "t123", "t250"], {}, "")
        cancelled = executor_pb2.ROLLOUT_STATE_CANCELLED
        assert await pages(executor, states=[cancelled], page_size=2) == [["t250", "t123"], ["t007"]]
        queued = executor_pb2.ROLLOUT_STATE_QUEUED
        found = await pages(executor, states=[queued], page_size=99)
        assert [len(page) for page in found] == [99, 99, 99]
