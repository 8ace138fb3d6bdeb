"""ExecutorService over the core: message → domain call → message. Calls not listed here are UNIMPLEMENTED."""

from __future__ import annotations

from typing import Any

from grpc import aio

from practicum.executor.core import Executor, rollout_ids
from practicum.v1 import executor_pb2, executor_pb2_grpc


class ExecutorService(executor_pb2_grpc.ExecutorServiceServicer):
    """The door for callers."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def SubmitTasks(
        self, request: executor_pb2.SubmitTasksRequest, context: aio.ServicerContext[Any, Any]
    ) -> executor_pb2.SubmitTasksResponse:
        """See the .proto."""
        tasks = await self._executor.submit(request.tasks, request_id=request.request_id)
        return executor_pb2.SubmitTasksResponse(
            tasks=[executor_pb2.SubmittedTask(task_id=task.id, rollout_ids=rollout_ids(task)) for task in tasks]
        )
