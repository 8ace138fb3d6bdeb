"""Streams of named consumers that ended: an executor within the test, on a real store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.executor_door import task

from practicum.common.errors import InvalidArgument
from practicum.executor.core import Executor
from practicum.executor.delivery.consumers import Consumers
from practicum.executor.store.sql import SqlStore
from practicum.v1 import executor_pb2


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStore]:
    path = str(tmp_path / "executor.db")
    store = SqlStore(path if request.param == "sqlite" else request.getfixturevalue("postgres_url"))
    yield store
    store.close()


async def test_a_stream_that_ended_acks_nothing(store: SqlStore) -> None:
    """Its name may be another consumer's by then, which would never be told what the old one had."""
    executor = Executor(store)
    consumers = Consumers(executor)
    async with executor.running():
        await executor.submit([task("t", 3)])
        await executor.cancel(["t"], {}, "")
        older = await consumers.open(executor_pb2.OpenConsumer(consumer="c"))
        frame = await anext(aiter(older.frames()))
        first, *_, last = [event.cursor for event in frame.events]
        older.ack(first)
        await executor.writer.gather().done()
        assert store.consumers() == {"c": first}
        await consumers.forget("c")
        newer = await consumers.open(executor_pb2.OpenConsumer(consumer="c"))
        older.ack(last)
        await executor.writer.gather().done()
        assert store.consumers() == {"c": 0}
        frame = await anext(aiter(newer.frames()))
        assert next(event.cursor for event in frame.events) == first


@pytest.mark.parametrize("name", ["", "a\0b", "a\nb", "x" * 257])
async def test_a_name_that_no_consumer_has_is_not_deleted(store: SqlStore, name: str) -> None:
    """PostgreSQL refuses a NUL, and what the store refuses ends the executor."""
    executor = Executor(store)
    async with executor.running():
        with pytest.raises(InvalidArgument) as error:
            await Consumers(executor).forget(name)
        assert list(error.value.fields) == ["consumer"]
        await Consumers(executor).forget("never seen")
