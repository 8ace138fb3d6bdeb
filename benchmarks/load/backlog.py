"""What a deep backlog costs: each dispatch, the memory of what waits, and the way back after a kill -9."""

from __future__ import annotations

import asyncio
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from figures import Figure
from grpc import aio

from load.closed_loop import Run, StandingBacklog
from load.executor_client import ExecutorClient, executor_client, own_channel
from load.executors import Service, node_commands, services_in, start_executor
from load.payload import EMPTY
from load.processes import children, cpu_seconds, rss_bytes
from practicum.v1 import dispatch_pb2, dispatch_pb2_grpc, executor_pb2, executor_pb2_grpc

SHALLOW, DEEP = 1_000, 100_000
NODE_SLOTS = 16
"""Two nodes of 16: 32 rollouts at work while the others wait."""
ROLLOUTS = 2_000
RESTARTS = 3
REDIAL_SECONDS = 0.01
LEASE = ("--lease-seconds", "600")
"""Nodes are paused while the other arm is measured, and keep their leases."""


@dataclass(frozen=True, slots=True)
class Filled:
    """An executor with so many rollouts waiting."""

    depth: int
    executor: Service
    client: ExecutorClient
    bytes_each: float


@dataclass(frozen=True, slots=True)
class Arm:
    """A filled executor with nodes at work."""

    filled: Filled
    backlog: StandingBacklog
    nodes: list[subprocess.Popen[bytes]]

    async def run(self, rollouts: int) -> Run:
        """Has the nodes work until so many rollouts have ended; they are paused before and after."""
        self.tell(signal.SIGCONT)
        try:
            return await self.backlog.run(rollouts, partial(cpu_seconds, self.filled.executor.pid))
        finally:
            self.tell(signal.SIGSTOP)

    def tell(self, number: signal.Signals) -> None:
        """Sends the nodes a signal."""
        for node in self.nodes:
            node.send_signal(number)


async def backlog_figures(repetitions: int) -> list[Figure]:
    """All figures, the two depths in turn in one run."""
    async with AsyncExitStack() as stack:
        filled = [await stack.enter_async_context(filled_executor(depth)) for depth in (SHALLOW, DEEP)]
        shallow, deep = arms = [await stack.enter_async_context(arm(each)) for each in filled]
        pairs = [[(await each.run(ROLLOUTS)).cpu_ms for each in arms] for _ in range(repetitions)]
        costs = [statistics.median(found) for found in zip(*pairs, strict=True)]
        shallow.filled.client.rest()
        back = await recoveries(deep)
        kept = await waiting(deep.filled.executor.address)
    return [
        Figure(f"CPU a rollout while {SHALLOW:,} are queued, 32 at work", costs[0], " ms"),
        Figure(f"CPU a rollout while {DEEP:,} are queued, 32 at work", costs[1], " ms"),
        Figure(f"dispatch cost at {DEEP:,} over that at {SHALLOW:,}", costs[1] / costs[0], "×", at_most=1.2),
        Figure("memory of a queued rollout", deep.filled.bytes_each, " B", at_most=2000),
        Figure(f"kill -9 with {DEEP:,} queued: until a node is given work, worst of {RESTARTS}", back, " s", at_most=2),
        Figure("rollouts that wait or are at work after it", kept, at_least=0.99 * DEEP),
    ]


@asynccontextmanager
async def filled_executor(depth: int) -> AsyncIterator[Filled]:
    """An executor with so many queued, and no node yet. What memory each takes is counted from the 1,000th on."""
    with tempfile.TemporaryDirectory() as folder, services_in(Path(folder)) as services:
        executor = start_executor(services, "full", *LEASE)
        async with executor_client(executor.address) as client:
            await client.fill(SHALLOW)
            before = rss_bytes(executor.pid)
            await client.fill(depth - SHALLOW)
            grown = rss_bytes(executor.pid) - before
            yield Filled(depth, executor, client, grown / max(depth - SHALLOW, 1))


@asynccontextmanager
async def arm(filled: Filled) -> AsyncIterator[Arm]:
    """Nodes for a filled executor: warm, then paused."""
    with children(node_commands(filled.executor.address, slots=NODE_SLOTS)) as nodes:
        ready = Arm(filled, filled.client.keep_depth(), nodes)
        await ready.run(ROLLOUTS // 4)
        yield ready


async def recoveries(deep: Arm) -> float:
    """Kills the executor under load, again and again. Returns the longest time until a node had work."""
    deep.tell(signal.SIGCONT)
    await deep.backlog.run(ROLLOUTS // 4, lambda: 0.0)
    deep.filled.client.rest()
    deep.tell(signal.SIGSTOP)  # At once before the kill: their streams break, and they say nothing more.
    return max([await recovery(deep.filled.executor, f"probe-{number}") for number in range(RESTARTS)])


async def waiting(address: str) -> int:
    """How many rollouts the executor says are queued or at work."""
    async with own_channel(address) as channel:
        stub: executor_pb2_grpc.ExecutorServiceAsyncStub = executor_pb2_grpc.ExecutorServiceStub(channel)
        stats = await stub.GetQueueStats(executor_pb2.GetQueueStatsRequest())
    return sum(queue.queued + queue.running for queue in stats.queues)


async def recovery(executor: Service, node_id: str) -> float:
    """Seconds from the new process's start until a node that dials all the time is given a rollout."""
    executor.kill()
    began = time.perf_counter()
    executor.launch()
    async with asyncio.timeout(120):
        while not await given_work(executor.address, node_id):  # noqa: ASYNC110 - another process is waited for.
            await asyncio.sleep(REDIAL_SECONDS)
    return time.perf_counter() - began


async def given_work(address: str, node_id: str) -> bool:
    """Dials once; whether it came to an assignment."""
    async with own_channel(address) as channel:
        call = dispatch_pb2_grpc.DispatchServiceStub(channel).Connect()
        register = dispatch_pb2.Register(node_id=node_id, incarnation="1", slots=1, agent_kinds=[EMPTY])
        try:
            await call.write(dispatch_pb2.ConnectRequest(register=register))
            while (frame := await call.read()) is not aio.EOF:
                if frame.assignments:
                    return True
        except (aio.AioRpcError, asyncio.InvalidStateError):
            pass
    return False
