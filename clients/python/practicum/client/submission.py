"""A submit: batches, repeats, and waiting for room."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

import grpc

from practicum.client.errors import CallFailed, SubmitFailed, told
from practicum.v1 import executor_pb2, executor_pb2_grpc, task_pb2

CALL_SECONDS = 30.0
BATCH = 1_000
ATTEMPTS = 5


class Submission:
    """One submit of many tasks."""

    def __init__(self, stub: executor_pb2_grpc.ExecutorServiceStub, address: str) -> None:
        self._stub = stub
        self._address = address
        self._size = BATCH
        self._accepted: list[executor_pb2.SubmittedTask] = []

    def run(self, tasks: Sequence[task_pb2.Task]) -> list[executor_pb2.SubmittedTask]:
        """Submits all. Raises SubmitFailed."""
        while (start := len(self._accepted)) < len(tasks):
            try:
                self._accepted += self._offer(tasks[start : start + self._size])
            except CallFailed as error:
                raise SubmitFailed(error, self._accepted) from error
        return self._accepted

    def _offer(self, batch: Sequence[task_pb2.Task]) -> Sequence[executor_pb2.SubmittedTask]:
        """What came of a batch; nothing when there is no room for so many: the next one is half as large."""
        request = executor_pb2.SubmitTasksRequest(request_id=uuid.uuid4().hex, tasks=batch)
        attempt = calls = 0
        while True:
            calls += 1
            try:
                with told(self._address):
                    answer = self._stub.SubmitTasks(request, timeout=CALL_SECONDS)
            except CallFailed as error:
                full = error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
                attempt += not full or error.retry_after is None
                if not error.may_retry or attempt == ATTEMPTS:
                    raise
                time.sleep(0.2 * 2**attempt if error.retry_after is None else error.retry_after)
                # Split only what surely was not taken: an earlier call without an answer may have been carried out.
                if full and calls == 1 and len(batch) > 1:
                    self._size = len(batch) // 2
                    return ()
            else:
                self._size = min(2 * self._size, BATCH)
                return answer.tasks
