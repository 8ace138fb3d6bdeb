"""Who watches a session's journal, and what it costs the others: an executor within the test, on a real store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from support.executor_door import task

from practicum.executor.core import Executor
from practicum.executor.dispatching.dispatcher import Dispatcher
from practicum.executor.store.sql import SqlStore
from practicum.v1 import message_pb2

Watch = AsyncGenerator[list[message_pb2.Message], None]


class CountingStore(SqlStore):
    """Counts who reads which journal."""

    def __init__(self, database: Path) -> None:
        super().__init__(database)
        self.reads: Counter[str] = Counter()

    def journal(self, session_id: str, *place: int, **limits: int) -> list[tuple[int, bytes]]:
        """See SqlStore."""
        self.reads[session_id] += 1
        return super().journal(session_id, *place, **limits)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CountingStore]:
    store = CountingStore(tmp_path / "executor.db")
    yield store
    store.close()


async def say(dispatcher: Dispatcher, session_id: str, text: str) -> None:
    """As the user; it is on disk then."""
    await dispatcher.messages.send(message_pb2.Message(session_id=session_id, sender="user", text=text))


def watch(executor: Executor, session_id: str) -> Watch:
    """From the beginning until the session ends."""
    return executor.journal.watch(session_id, 1, lambda: executor.has_open(session_id))


async def texts(watch: Watch) -> list[str]:
    """What is read until the end."""
    return [message.text async for messages in watch for message in messages]


async def until_read(store: CountingStore, session_id: str) -> None:
    """Until a watcher has looked once."""
    while not store.reads[session_id]:  # noqa: ASYNC110 (a thread counts)
        await asyncio.sleep(0.001)


async def test_what_is_said_elsewhere_costs_a_watcher_nothing(store: CountingStore) -> None:
    """It reads the disk when something was said in its own session, or when that ended."""
    executor = Executor(store)
    dispatcher = Dispatcher(executor)
    async with executor.running():
        await executor.submit([task("quiet"), task("loud")])
        quiet = asyncio.create_task(texts(watch(executor, "quiet/0")))
        await until_read(store, "quiet/0")
        for number in range(10):
            await say(dispatcher, "loud/0", str(number))
        await executor.cancel(["loud"], {}, "")
        await asyncio.sleep(0)
        assert store.reads["quiet/0"] == 1
        await say(dispatcher, "quiet/0", "hello")
        await executor.cancel(["quiet"], {}, "")
        assert await quiet == ["hello"]


async def test_a_watcher_goes_on_in_the_next_life_of_the_executor(store: CountingStore) -> None:
    """Where nothing was said since, and so nothing of the session is in memory."""
    executor = Executor(store)
    async with executor.running():
        await executor.submit([task("t")])
        await say(Dispatcher(executor), "t/0", "before")
    again = Executor(store)
    dispatcher = Dispatcher(again)
    async with again.running():
        found = asyncio.create_task(texts(watch(again, "t/0")))
        store.reads.clear()
        await until_read(store, "t/0")
        await say(dispatcher, "t/0", "after")
        await again.cancel(["t"], {}, "")
        assert await found == ["before", "after"]
        assert await texts(watch(again, "t/0")) == ["before", "after"], "it ended, and can still be read"


async def test_a_watcher_that_leaves_is_forgotten(store: CountingStore) -> None:
    """While another goes on."""
    executor = Executor(store)
    dispatcher = Dispatcher(executor)
    async with executor.running():
        await executor.submit([task("t")])
        await say(dispatcher, "t/0", "hello")
        stays = asyncio.create_task(texts(watch(executor, "t/0")))
        async with aclosing(watch(executor, "t/0")) as leaves:
            await anext(leaves)
        await say(dispatcher, "t/0", "again")
        await executor.cancel(["t"], {}, "")
        assert await stays == ["hello", "again"]
    assert not executor.journal.watched
