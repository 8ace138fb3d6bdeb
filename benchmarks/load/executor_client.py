"""The caller's and the consumer's side of the executor under load, in one event loop."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from grpc import aio

from load.closed_loop import ClosedLoop, Run, StandingBacklog
from load.payload import task
from practicum.common.channels import OPTIONS, connect
from practicum.v1 import executor_pb2, executor_pb2_grpc, task_pb2, trajectory_pb2

Request = executor_pb2.StreamTrajectoriesRequest
CREDITS = 10_000
MakeTask = Callable[[str], task_pb2.Task]
NUMBERS = itertools.count()
BATCH = 1_000


class ExecutorClient:
    """Submits, and reads trajectories: each frame is acked, and credits are granted again when half are used."""

    def __init__(self, stub: executor_pb2_grpc.ExecutorServiceAsyncStub) -> None:
        self.stub = stub
        self.loop: ClosedLoop | StandingBacklog | None = None
        self._submits: set[asyncio.Task[None]] = set()

    async def keep_in_flight(
        self, in_flight: int, *, rollouts: int, cpu: Callable[[], float], make: MakeTask = task
    ) -> Run:
        """Runs so many rollouts, so many at a time."""
        loop = self.loop = ClosedLoop(lambda ids: self.begin(ids, make), rollouts, in_flight, f"r{next(NUMBERS)}-")
        return await loop.run(cpu)

    async def fill(self, rollouts: int) -> None:
        """Submits so many, in batches as large as the client library's."""
        prefix = f"f{next(NUMBERS)}-"
        for first in range(0, rollouts, BATCH):
            await self.submit([f"{prefix}{n}" for n in range(first, min(first + BATCH, rollouts))])

    def keep_depth(self) -> StandingBacklog:
        """From now on a rollout is submitted for each that ends."""
        self.loop = StandingBacklog(lambda ids: self.begin(ids, task), f"s{next(NUMBERS)}-")
        return self.loop

    def rest(self) -> None:
        """Submits nothing more, whatever ends or fails."""
        self.loop = None

    async def consume(self, call: Any) -> None:
        """Reads the stream to its end."""
        seen: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        acking = asyncio.create_task(ack(call, seen))
        try:
            while (response := await call.read()) is not aio.EOF:
                if self.loop is not None:
                    self.loop.done([task_id(event) for event in response.events if event.HasField("trajectory")])
                seen.put_nowait((response.events[-1].cursor, len(response.events)))
            raise ConnectionError("the executor ended the stream")
        except Exception as error:
            if self.loop is not None:
                self.loop.failed(error)
            raise
        finally:
            acking.cancel()

    def begin(self, ids: list[str], make: MakeTask = task) -> None:
        """Begins to submit these tasks together, and returns at once."""
        submit = asyncio.create_task(self.submit(ids, make))
        self._submits.add(submit)
        submit.add_done_callback(self._submitted)

    async def submit(self, ids: list[str], make: MakeTask = task) -> None:
        """Submits these tasks together."""
        tasks = [make(name) for name in ids]
        await self.stub.SubmitTasks(executor_pb2.SubmitTasksRequest(tasks=tasks))

    def _submitted(self, submit: asyncio.Task[None]) -> None:
        self._submits.discard(submit)
        error = None if submit.cancelled() else submit.exception()
        if self.loop is not None and error is not None:
            self.loop.failed(error)


def task_id(event: executor_pb2.TrajectoryEvent) -> str:
    """Whose trajectory it is. One that failed measures nothing."""
    if event.trajectory.outcome != trajectory_pb2.OUTCOME_FINISHED:
        raise RuntimeError(f"{event.trajectory.rollout_id} ended with {event.trajectory.error}")
    return event.trajectory.task_id


async def ack(call: Any, seen: asyncio.Queue[tuple[int, int]]) -> None:
    """Acks the newest cursor, and grants credits when half are used; acks that fall together become one."""
    used = 0
    while True:
        cursor, events = await seen.get()
        used += events
        while not seen.empty():
            cursor, events = seen.get_nowait()
            used += events
        await call.write(Request(ack=executor_pb2.AckCursor(cursor=cursor)))
        if used > CREDITS / 2:
            await call.write(Request(credits=executor_pb2.GrantCredits(credits=used)))
            used = 0


def own_channel(address: str) -> aio.Channel:
    """A channel that shares no connection with others of this process, and no back-off of one that broke."""
    return aio.insecure_channel(address, options=[*OPTIONS, ("grpc.use_local_subchannel_pool", 1)])


@asynccontextmanager
async def executor_client(address: str, consumer: str = "load") -> AsyncIterator[ExecutorClient]:
    """A client whose consumer is open."""
    async with connect(address) as channel:
        client = ExecutorClient(executor_pb2_grpc.ExecutorServiceStub(channel))
        call = client.stub.StreamTrajectories()
        opened = executor_pb2.OpenConsumer(consumer=consumer, credits=CREDITS, from_cursor=-1)
        await call.write(Request(open=opened))
        consuming = asyncio.create_task(client.consume(call))
        try:
            yield client
        finally:
            consuming.cancel()
            await asyncio.gather(consuming, return_exceptions=True)
