"""TrainerService over the runs: message → domain call → message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from grpc import aio

from practicum.trainer.runs import Runs
from practicum.v1 import trainer_pb2, trainer_pb2_grpc


class TrainerService(trainer_pb2_grpc.TrainerServiceServicer):
    """The door for callers."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    async def StartRun(
        self, request: trainer_pb2.StartRunRequest, context: aio.ServicerContext[Any, Any]
    ) -> trainer_pb2.StartRunResponse:
        """See the .proto."""
        return trainer_pb2.StartRunResponse(run=await self._runs.start(request.spec))

    async def GetRun(
        self, request: trainer_pb2.GetRunRequest, context: aio.ServicerContext[Any, Any]
    ) -> trainer_pb2.GetRunResponse:
        """See the .proto."""
        return trainer_pb2.GetRunResponse(run=self._runs.get(request.run_id))

    async def ListRuns(
        self, request: trainer_pb2.ListRunsRequest, context: aio.ServicerContext[Any, Any]
    ) -> trainer_pb2.ListRunsResponse:
        """See the .proto."""
        return trainer_pb2.ListRunsResponse(runs=self._runs.all())

    async def WatchRun(
        self, request: trainer_pb2.WatchRunRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[trainer_pb2.WatchRunResponse]:
        """See the .proto."""
        async for events in self._runs.watch(request.run_id, request.from_sequence):
            yield trainer_pb2.WatchRunResponse(events=events)

    async def StopRun(
        self, request: trainer_pb2.StopRunRequest, context: aio.ServicerContext[Any, Any]
    ) -> trainer_pb2.StopRunResponse:
        """See the .proto."""
        return trainer_pb2.StopRunResponse(run=await self._runs.stop(request.run_id))
