"""Trajectories as the executor streams them to a named consumer, over cuts, and from whoever leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeAlias

import grpc
import structlog
from grpc import aio

from practicum.common.executors import Executors
from practicum.trainer.leader import most_pause_seconds, stub_of
from practicum.trainer.retry import reason, worth_repeating
from practicum.v1 import executor_pb2, trajectory_pb2

log = structlog.get_logger(__name__)

CREDITS = 256

Call: TypeAlias = (
    "aio.StreamStreamCall[executor_pb2.StreamTrajectoriesRequest, executor_pb2.StreamTrajectoriesResponse]"
)


class StreamBroken(Exception):
    """The stream ended, without a reason or unheard; what was not acked comes again in the next."""


async def trajectories(
    executors: Executors, opening: executor_pb2.OpenConsumer
) -> AsyncGenerator[trajectory_pb2.Trajectory]:
    """Trajectories as they come, for ever. Each is acked once the caller asks for the next."""
    failures = 0
    while True:
        address = executors.address
        try:
            async with aclosing(stream(stub_of(executors).StreamTrajectories(), opening)) as found:
                async for trajectory in found:
                    failures = 0
                    yield trajectory
        except StreamBroken as error:
            executors.failed(address)
            log.warning("stream_broken", executor=address, detail=str(error))
        except aio.AioRpcError as error:
            if not worth_repeating(error):
                raise
            executors.failed(address, error)
            log.warning("stream_broken", executor=address, detail=reason(error))
        failures += 1
        await asyncio.sleep(min(most_pause_seconds(executors), 0.1 * 2**failures))


async def stream(call: Call, opening: executor_pb2.OpenConsumer) -> AsyncGenerator[trajectory_pb2.Trajectory]:
    """One stream's trajectories. Raises at its end, StreamBroken or what the executor says."""
    assembly = Assembly()
    try:
        await send(call, executor_pb2.StreamTrajectoriesRequest(open=opening))
        async for response in call:
            for trajectory in assembly.add(response.events):
                yield trajectory
            if assembly.cursor:
                ack = executor_pb2.AckCursor(cursor=assembly.cursor)
                await send(call, executor_pb2.StreamTrajectoriesRequest(ack=ack))
            grant = executor_pb2.GrantCredits(credits=len(response.events))
            await send(call, executor_pb2.StreamTrajectoriesRequest(credits=grant))
        raise StreamBroken("the executor ended it")
    finally:
        call.cancel()


async def send(call: Call, request: executor_pb2.StreamTrajectoriesRequest) -> None:
    """Writes a frame. Raises StreamBroken when the stream has ended meanwhile, whatever gRPC calls that."""
    try:
        await call.write(request)
    except asyncio.InvalidStateError as error:
        raise StreamBroken(str(error)) from error
    except aio.AioRpcError as error:
        # gRPC's own, when the stream ends during the write: the executor's status is lost then.
        if error.code() != grpc.StatusCode.INTERNAL:
            raise
        raise StreamBroken(reason(error)) from error


class Assembly:
    """Puts trajectories together that came in parts. `cursor`: of the last event that is whole; 0: none yet. The parts
    of a trajectory share one, so an ack before the last part would lose it if the stream broke in between."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.cursor = 0

    def add(self, events: Sequence[executor_pb2.TrajectoryEvent]) -> list[trajectory_pb2.Trajectory]:
        """The trajectories that these events complete."""
        found = []
        for event in events:
            if event.HasField("part"):
                self._parts.append(event.part.data)
                if not event.part.last:
                    continue
                found.append(trajectory_pb2.Trajectory.FromString(b"".join(self._parts)))
                self._parts.clear()
            elif event.HasField("trajectory"):
                found.append(event.trajectory)
            self.cursor = event.cursor
        return found
