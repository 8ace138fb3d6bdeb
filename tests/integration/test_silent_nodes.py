"""Nodes that are stopped in their tracks, or cut off, keep their connections and say nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from grpc import aio
from support.pairs import stopped
from support.scripted_node import ScriptedNode
from support.services import Services

from practicum.common import server
from practicum.executor.core import Executor
from practicum.executor.dispatching.dispatcher import Dispatcher
from practicum.executor.dispatching.service import DispatchService
from practicum.executor.store.sql import SqlStore
from practicum.v1 import dispatch_pb2_grpc, executor_pb2, executor_pb2_grpc

TIMES_AS_FAST = 10
ENOUGH_SECONDS = 15.0


def test_a_node_that_is_silent_for_as_long_as_a_lease_lasts_has_to_dial_in_again(services: Services) -> None:
    """It is given nothing until then; a node that says anything at all stays."""
    executor = services.executor("--lease-seconds", "1")
    silent, talking = ScriptedNode(executor.address, "silent"), ScriptedNode(executor.address, "talking")
    with grpc.insecure_channel(executor.address) as channel:
        nodes = executor_pb2_grpc.ExecutorServiceStub(channel).ListNodes
        while len(shown := nodes(executor_pb2.ListNodesRequest(), timeout=5).nodes) > 1:
            talking.send(heartbeat={})
        with pytest.raises(grpc.RpcError) as caught:
            silent.next_frame()
        assert [(node.node_id, node.connected) for node in shown] == [("talking", True)]
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    again = ScriptedNode(executor.address, "silent")
    for node in (silent, talking, again):
        node.close()


async def test_the_stream_of_a_node_that_is_stopped_ends(services: Services, tmp_path: Path) -> None:
    """However long leases last: its pings are not answered."""
    hasty = [(name, value // TIMES_AS_FAST if name.endswith("_ms") else value) for name, value in server.OPTIONS]
    store = SqlStore(tmp_path / "executor.db")
    dispatcher = Dispatcher(Executor(store))
    serving = aio.server(options=hasty)
    dispatch_pb2_grpc.add_DispatchServiceServicer_to_server(DispatchService(dispatcher, lease_seconds=600), serving)
    port = serving.add_insecure_port("127.0.0.1:0")
    await serving.start()
    flags = ("--executor", f"127.0.0.1:{port}", "--node-id", "n", "--agent", "napper=support.agents:napper")
    node = await asyncio.to_thread(services.start, "node", *flags)
    async with asyncio.timeout(ENOUGH_SECONDS):
        await until(lambda: "n" in dispatcher.links)
        with stopped(node):
            await until(lambda: not dispatcher.links)
    await serving.stop(None)
    store.close()


async def until(holds: Callable[[], bool]) -> None:
    """Until something is as it should be."""
    while not holds():  # noqa: ASYNC110 (that a stream has ended is nobody's event)
        await asyncio.sleep(0.01)
