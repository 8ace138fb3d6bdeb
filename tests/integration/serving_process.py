"""A process for test_server: serves an ExecutorService that refuses, on the address given."""

from __future__ import annotations

import asyncio
import sys

from grpc import aio

from practicum.common.errors import ConfigError, InvalidArgument, ResourceExhausted
from practicum.common.server import ServerConfig, serve
from practicum.v1 import executor_pb2, executor_pb2_grpc


class Refusing(executor_pb2_grpc.ExecutorServiceServicer):
    """Raises what a service may raise; ListTasks runs until it is cut off."""

    async def GetTask(self, request, context):  # type: ignore[no-untyped-def]
        raise InvalidArgument({"task_id": "is empty; give the id of a task"})

    async def QueryTrajectories(self, request, context):  # type: ignore[no-untyped-def]
        yield executor_pb2.QueryTrajectoriesResponse()
        raise ResourceExhausted("no room", reason="BACKLOG_FULL", retry_after_seconds=1.5)

    async def ListTasks(self, request, context):  # type: ignore[no-untyped-def]
        await asyncio.Event().wait()


def register(server: aio.Server) -> None:
    executor_pb2_grpc.add_ExecutorServiceServicer_to_server(Refusing(), server)


if __name__ == "__main__":
    config = ServerConfig(address=sys.argv[1], grace_seconds=2.0)
    try:
        asyncio.run(serve(config, services=["practicum.v1.ExecutorService"], register=register))
    except ConfigError as error:
        sys.exit(str(error))
