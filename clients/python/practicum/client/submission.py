"""A submit: batches, repeats, and waiting for room."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

import grpc

from practicum.client.errors import CallFailed, SubmitFailed, told
from practicum.client.route import Route
from practicum.client.tracing import Metadata
from practicum.v1 import executor_pb2, task_pb2

CALL_SECONDS = 30.0
BATCH = 1_000
ATTEMPTS = 5


class Submission:
    """One submit of many tasks."""

    def __init__(self, route: Route, metadata: Metadata = ()) -> None:
        self._route = route
        self._metadata = metadata
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
        attempt, unanswered = 0, False
        while True:
            address = self._route.address
            try:
                with told(self._route.addresses):
                    answer = self._route.stub.SubmitTasks(request, timeout=CALL_SECONDS, metadata=self._metadata)
            except CallFailed as error:
                if self._route.turn(address, error):
                    unanswered |= error.reason != "NOT_LEADER"
                    continue
                full = error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
                attempt += not full or error.retry_after is None
                if not error.may_retry or attempt == ATTEMPTS:
                    raise
                time.sleep(0.2 * 2**attempt if error.retry_after is None else error.retry_after)
                # Split only what surely was not taken: an earlier call without an answer may have been carried out.
                if full and not unanswered and len(batch) > 1:
                    self._size = len(batch) // 2
                    return ()
                unanswered = True
            else:
                self._route.reached()
                self._size = min(2 * self._size, BATCH)
                return answer.tasks
