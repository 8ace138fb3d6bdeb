"""Many idle nodes in one process, each on a connection of its own: `python -m load.idle_nodes --executor ADDRESS`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from grpc import aio

from load.executor_client import own_channel
from load.payload import EMPTY
from load.processes import READY
from practicum.v1 import dispatch_pb2, dispatch_pb2_grpc

AT_ONCE = 50


async def run(address: str, nodes: int) -> None:
    """Connects all, then says that it is ready; ends when any stream does."""
    dialling = asyncio.Semaphore(AT_ONCE)
    connected = asyncio.Barrier(nodes + 1)
    async with asyncio.TaskGroup() as tasks:
        for index in range(nodes):
            tasks.create_task(node(address, index, index / nodes, dialling, connected))
        await connected.wait()
        print(READY, flush=True)


async def node(address: str, index: int, phase: float, dialling: asyncio.Semaphore, connected: asyncio.Barrier) -> None:
    """One node. Heartbeats are spread over the interval, as those of nodes that were started one by one are."""
    async with own_channel(address) as channel:
        call = dispatch_pb2_grpc.DispatchServiceStub(channel).Connect(wait_for_ready=True)
        register = dispatch_pb2.Register(node_id=f"idle-{index}", incarnation="1", slots=16, agent_kinds=[EMPTY])
        async with dialling:
            await call.write(dispatch_pb2.ConnectRequest(register=register))
            first = await call.read()
        interval = first.registered.heartbeat_interval.ToTimedelta().total_seconds()
        await connected.wait()
        await asyncio.sleep(phase * interval)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(beat(call, interval))
            while await call.read() is not aio.EOF:
                pass
            raise ConnectionError(f"the stream of node {index} ended")


async def beat(call: Any, interval: float) -> None:
    """Says that it lives."""
    while True:
        await call.write(dispatch_pb2.ConnectRequest(heartbeat=dispatch_pb2.Heartbeat()))
        await asyncio.sleep(interval)


def main() -> None:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executor", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    arguments = parser.parse_args()
    try:
        asyncio.run(run(arguments.executor, arguments.nodes))
    except* (aio.AioRpcError, asyncio.InvalidStateError, ConnectionError) as errors:
        print(f"ended: {errors.exceptions[0]!r}", file=sys.stderr)
        raise SystemExit(1) from None  # The executor was ended.


if __name__ == "__main__":
    main()
