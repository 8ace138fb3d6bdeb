"""A broker as one writes it in an hour: grpc.aio, unary calls, one process, a queue in memory.

A caller's call `Run` is answered when its rollout has ended; a node's call `Next` brings back the rollout that it has
finished, if any, and waits for another. Nodes take what is there, as many at a time as they have loops.
What it does not do: anything durable, leases, attempts, acks, priorities; what is in flight is lost with it.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from typing import Any

from grpc import aio, method_handlers_generic_handler, unary_unary_rpc_method_handler
from load.closed_loop import ClosedLoop
from load.processes import READY, children, cpu_seconds

from practicum.v1.dispatch_pb2 import Assignment, Finished
from practicum.v1.task_pb2 import AgentSpec, Task
from rivals.arm import INSTRUCTION, NODES, RESULT, serve, unused_port

LOOPS = 128
"""Of each node: two nodes take 256 rollouts at once."""


class Broker:
    """The server."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Assignment] = asyncio.Queue()
        self._ended: dict[str, asyncio.Future[Finished]] = {}
        self._numbers = itertools.count()

    async def run(self, task: Task, _: Any) -> Finished:
        """Of a caller."""
        name = str(next(self._numbers))
        ended = self._ended[name] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(Assignment(lease_id=name, rollout_id=task.id, attempt=1, task=task))
        return await ended

    async def next(self, finished: Finished, _: Any) -> Assignment:
        """Of a node."""
        if (ended := self._ended.pop(finished.lease_id, None)) is not None:
            ended.set_result(finished)
        return await self._queue.get()


class Naive:
    """The broker as an arm."""

    loop: ClosedLoop

    def __init__(self, channel: aio.Channel, pid: int) -> None:
        self._pid = pid
        self._run = channel.unary_unary("/naive/Run", Task.SerializeToString, Finished.FromString)
        self._calls: set[asyncio.Task[None]] = set()

    def submit(self, ids: list[str]) -> None:
        """One call for each."""
        for name in ids:
            call = asyncio.create_task(self._one(name))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    def cpu(self) -> float:
        """The broker's."""
        return cpu_seconds(self._pid)

    async def _one(self, name: str) -> None:
        try:
            finished = await self._run(Task(id=name, instruction=INSTRUCTION, agent=AgentSpec(kind="empty")))
            self.loop.done([finished.rollout_id])
        except aio.AioRpcError as error:
            self.loop.failed(error)


async def main() -> None:
    """Starts the broker and its nodes, serves."""
    address = f"127.0.0.1:{unused_port()}"
    module = ("-m", "rivals.naive_grpc")
    with children([(*module, "broker", address)]) as [broker], children(NODES * [(*module, "node", address)]):
        async with aio.insecure_channel(address) as channel:
            await serve(Naive(channel, broker.pid))


async def run_broker(address: str) -> None:
    """The server's process."""
    broker, server = Broker(), aio.server()
    methods = {
        "Run": unary_unary_rpc_method_handler(broker.run, Task.FromString, Finished.SerializeToString),
        "Next": unary_unary_rpc_method_handler(broker.next, Finished.FromString, Assignment.SerializeToString),
    }
    server.add_generic_rpc_handlers([method_handlers_generic_handler("naive", methods)])
    server.add_insecure_port(address)
    await server.start()
    print(READY, flush=True)
    await server.wait_for_termination()


async def run_node(address: str) -> None:
    """A node's process."""
    async with aio.insecure_channel(address) as channel:
        following = channel.unary_unary("/naive/Next", Finished.SerializeToString, Assignment.FromString)

        async def loop() -> None:
            finished = Finished()
            while True:
                given = await following(finished)
                finished = Finished(lease_id=given.lease_id, rollout_id=given.rollout_id, trajectory=RESULT.encode())

        print(READY, flush=True)
        await asyncio.gather(*(loop() for _ in range(LOOPS)))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["broker", address]:
            asyncio.run(run_broker(address))
        case ["node", address]:
            asyncio.run(run_node(address))
        case _:
            asyncio.run(main())
