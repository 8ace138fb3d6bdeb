"""Two streams of one node: what the older one still says or is told changes nothing for the newer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from grpc import aio

from practicum.common.errors import FailedPrecondition
from practicum.executor.core import Executor
from practicum.executor.dispatching.dispatcher import Dispatcher
from practicum.executor.dispatching.link import NodeLink
from practicum.executor.dispatching.service import DispatchService
from practicum.executor.store.sql import SqlStore
from practicum.v1 import dispatch_pb2, message_pb2, task_pb2

NO_CONTEXT = cast(aio.ServicerContext[Any, Any], None)


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[Executor]:
    store = SqlStore(tmp_path / "executor.db")
    yield Executor(store)
    store.close()


@pytest.fixture
def dispatcher(executor: Executor) -> Dispatcher:
    return Dispatcher(executor)


def register(incarnation: str, *, slots: int = 2) -> dispatch_pb2.Register:
    """A process of node `n`."""
    return dispatch_pb2.Register(node_id="n", incarnation=incarnation, slots=slots, agent_kinds=["tool_agent"])


async def frames(*given: dispatch_pb2.ConnectRequest) -> AsyncIterator[dispatch_pb2.ConnectRequest]:
    """What a node says, which then stays silent."""
    for frame in given:
        yield frame
    await asyncio.Event().wait()


def connect(dispatcher: Dispatcher, incarnation: str) -> NodeLink:
    """A process of node `n` has dialled in."""
    link = dispatcher.connect(register(incarnation))
    dispatcher.register(register(incarnation))
    return link


async def test_a_stream_that_was_taken_over_while_it_was_answered_registers_nothing(
    executor: Executor, dispatcher: Dispatcher
) -> None:
    """Its node did not read its first answer, and a newer process came and left: no node is there."""
    first = dispatch_pb2.ConnectRequest(register=register("1", slots=1000))
    older = DispatchService(dispatcher, lease_seconds=30).Connect(frames(first), NO_CONTEXT)
    assert (await anext(older)).HasField("registered")
    dispatcher.disconnect(connect(dispatcher, "2"))
    with pytest.raises(FailedPrecondition, match="another process"):
        await anext(older)
    nodes = executor.scheduler.nodes.values()
    assert [(node.incarnation, node.connected) for node in nodes] == [("2", False)]
    assert not dispatcher.links


async def test_a_stream_that_is_taken_over_while_it_is_journaled_does_nothing_more(
    executor: Executor, dispatcher: Dispatcher
) -> None:
    """The rest of its frame would be carried out on the newer process."""
    async with executor.running():
        agent = task_pb2.AgentSpec(kind="tool_agent")
        await executor.submit([task_pb2.Task(id="t", instruction="x", agent=agent)])
        link = connect(dispatcher, "1")
        executor.scheduler.dispatch(0.0)
        said = message_pb2.Message(id="m", session_id="t/0")
        frame = dispatch_pb2.ConnectRequest(messages=[said], draining=True)
        service = DispatchService(dispatcher, lease_seconds=30)
        reader = asyncio.create_task(service._read(link, frames(frame)))
        await asyncio.sleep(0)  # It waits for the journal, which is on disk.
        connect(dispatcher, "2")
        async with asyncio.timeout(5):
            await reader
    assert not executor.scheduler.nodes["n"].draining
