"""What nodes cost that only say that they live."""

from __future__ import annotations

import asyncio

from figures import Figure

from load.executor_client import executor_client
from load.executors import running_executor
from load.processes import children, cpu_seconds
from practicum.v1 import executor_pb2

NODES = 1_000
SETTLED_SECONDS = 3.0


async def idle_figures(seconds: float) -> list[Figure]:
    """The executor's CPU over so many seconds, with the default lease of 30 s and heartbeats each 10 s."""
    with running_executor("full") as executor:
        command = ("-m", "load.idle_nodes", "--executor", executor.address, "--nodes", str(NODES))
        with children([command]):
            await asyncio.sleep(SETTLED_SECONDS)
            before = cpu_seconds(executor.pid)
            await asyncio.sleep(seconds)
            share = 100 * (cpu_seconds(executor.pid) - before) / seconds
            connected = await connected_nodes(executor.address)
    return [
        Figure(f"{NODES:,} idle nodes over {seconds:g} s: executor CPU, of one core", share, "%", at_most=10),
        Figure("idle nodes that were still connected in the end", connected, at_least=NODES),
    ]


async def connected_nodes(address: str) -> int:
    """How many nodes the executor sees connected."""
    async with executor_client(address) as client:
        answer = await client.stub.ListNodes(executor_pb2.ListNodesRequest())
    return sum(node.connected for node in answer.nodes)
