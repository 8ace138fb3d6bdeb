"""ExecutorService over the core: message → domain call → message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

import structlog
from grpc import aio
from structlog.contextvars import bind_contextvars

from practicum.common import tracing
from practicum.common.errors import InvalidArgument, NotFound
from practicum.common.streams import reading
from practicum.executor.core import Executor
from practicum.executor.delivery.consumers import PAGE, Consumers, ConsumerStream
from practicum.executor.delivery.filters import Wanted, filter_faults, label_faults
from practicum.executor.delivery.trajectories import frames, pieces, put_all
from practicum.executor.dispatching.dispatcher import Dispatcher
from practicum.executor.observing.events import traced
from practicum.executor.observing.listing import list_tasks
from practicum.executor.observing.tracing import traceparent_of
from practicum.executor.observing.views import node_info, queue_stats, task_status
from practicum.executor.sessions.journal import MAX_SEQUENCE
from practicum.executor.store.cursors import end_of
from practicum.executor.store.stored import LAST_NUMBER
from practicum.executor.tasks.dead_letters import DeadLetters
from practicum.executor.tasks.validation import MAX_TASKS, TASK_ID, check_ids
from practicum.v1 import executor_pb2, executor_pb2_grpc

log = structlog.get_logger(__name__)

MAX_REQUEST_ID = 256
MAX_REASON = 4_096
Context = aio.ServicerContext[Any, Any]


class ExecutorService(executor_pb2_grpc.ExecutorServiceServicer):
    """The door for callers and consumers. Each call is described in the .proto."""

    def __init__(self, executor: Executor, dispatcher: Dispatcher, consumers: Consumers) -> None:
        self._executor = executor
        self._dispatcher = dispatcher
        self._consumers = consumers
        self._dead_letters = DeadLetters(executor)

    async def SubmitTasks(
        self, request: executor_pb2.SubmitTasksRequest, context: Context
    ) -> executor_pb2.SubmitTasksResponse:
        """Accepts tasks."""
        check_text("request_id", request.request_id, MAX_REQUEST_ID)
        with tracing.span("submit", {"practicum.tasks": len(request.tasks)}, parent=traceparent_of(context)):
            accepted = await self._executor.submit(
                request.tasks, request_id=request.request_id, traceparent=tracing.current()
            )
            rollouts, ids = sum(len(ids) for _, ids in accepted), traced(tracing.current())
            log.info("tasks_accepted", tasks=len(accepted), rollouts=rollouts, request_id=request.request_id, **ids)
        response = executor_pb2.SubmitTasksResponse()
        for task_id, rollout_ids in accepted:
            response.tasks.add(task_id=task_id, rollout_ids=rollout_ids)
        return response

    async def GetTask(self, request: executor_pb2.GetTaskRequest, context: Context) -> executor_pb2.GetTaskResponse:
        """Tells how a task stands."""
        known = bool(TASK_ID.fullmatch(request.task_id))
        stored = await asyncio.to_thread(self._executor.store.tasks, [request.task_id]) if known else []
        if not stored:
            raise NotFound(f"no task {request.task_id!r} was submitted", reason="TASK_UNKNOWN")
        return executor_pb2.GetTaskResponse(status=task_status(self._executor, stored[0]))

    async def ListTasks(
        self, request: executor_pb2.ListTasksRequest, context: Context
    ) -> executor_pb2.ListTasksResponse:
        """Lists tasks, a page at a time."""
        check_labels(request.labels)
        return await list_tasks(self._executor, request)

    async def CancelTasks(
        self, request: executor_pb2.CancelTasksRequest, context: Context
    ) -> executor_pb2.CancelTasksResponse:
        """Cancels what has not ended."""
        check_ids(request.task_ids)
        check_labels(request.labels)
        check_text("reason", request.reason, MAX_REASON)
        cancelled = await self._executor.cancel(request.task_ids, request.labels, request.reason)
        return executor_pb2.CancelTasksResponse(cancelled_rollouts=cancelled)

    async def RequeueTasks(
        self, request: executor_pb2.RequeueTasksRequest, context: Context
    ) -> executor_pb2.RequeueTasksResponse:
        """Puts dead letters back."""
        check_ids(request.task_ids)
        check_labels(request.labels)
        requeued = await self._dead_letters.requeue(request.task_ids, request.labels)
        return executor_pb2.RequeueTasksResponse(requeued_rollouts=requeued)

    async def StreamTrajectories(
        self, request_iterator: AsyncIterator[executor_pb2.StreamTrajectoriesRequest], context: Context
    ) -> AsyncIterator[executor_pb2.StreamTrajectoriesResponse]:
        """Streams events to a named consumer."""
        first = await anext(aiter(request_iterator), executor_pb2.StreamTrajectoriesRequest())
        if not first.HasField("open"):
            raise InvalidArgument({"open": "the first frame has to open a consumer"})
        stream = await self._consumers.open(first.open)
        bind_contextvars(consumer=first.open.consumer)
        try:
            async with reading(steer(stream, request_iterator), stream.reader_ended):
                async for frame in stream.frames():
                    yield frame
        finally:
            self._consumers.closed(first.open.consumer, stream)

    async def QueryTrajectories(
        self, request: executor_pb2.QueryTrajectoriesRequest, context: Context
    ) -> AsyncIterator[executor_pb2.QueryTrajectoriesResponse]:
        """Streams what is stored."""
        check_query(request)
        wanted, cursor, left, ids = (
            Wanted.of(request.filter),
            0,
            request.limit or LAST_NUMBER,
            list(request.rollout_ids),
        )
        read = partial(self._executor.store.results_after, rollout_ids=ids)
        while left and (page := await asyncio.to_thread(read, cursor, min(PAGE, left))):
            cursor = end_of(page[-1].number)
            found = [result for result in page if wanted.of_interest(result) and wanted.meets(result)]
            for frame in frames(piece for result in found for piece in pieces(result)):
                self._consumers.check_serving()
                yield put_all(frame, executor_pb2.QueryTrajectoriesResponse())
            left -= len(found)

    async def DeleteConsumer(
        self, request: executor_pb2.DeleteConsumerRequest, context: Context
    ) -> executor_pb2.DeleteConsumerResponse:
        """Forgets a consumer."""
        await self._consumers.forget(request.consumer)
        return executor_pb2.DeleteConsumerResponse()

    async def SendMessage(
        self, request: executor_pb2.SendMessageRequest, context: Context
    ) -> executor_pb2.SendMessageResponse:
        """Says something into a session."""
        sequence, error = await self._dispatcher.messages.send(request.message, traceparent=traceparent_of(context))
        return executor_pb2.SendMessageResponse(sequence=sequence, error=error)

    async def Subscribe(
        self, request: executor_pb2.SubscribeRequest, context: Context
    ) -> AsyncIterator[executor_pb2.SubscribeResponse]:
        """Receives what is said in a session. The call's metadata say that it began."""
        async with self._dispatcher.messages.subscription(request) as subscription:
            await context.send_initial_metadata(())
            async for messages in subscription.frames():
                yield executor_pb2.SubscribeResponse(messages=messages)

    async def WatchSession(
        self, request: executor_pb2.WatchSessionRequest, context: Context
    ) -> AsyncIterator[executor_pb2.WatchSessionResponse]:
        """Reads a session's journal."""
        session_id, has_open = request.session_id, self._executor.has_open
        if not await asyncio.to_thread(self._executor.store.knows_session, session_id):
            raise NotFound(f"no session {session_id!r} is known", reason="SESSION_UNKNOWN")
        pages = self._executor.journal.watch(
            session_id, min(request.from_sequence, MAX_SEQUENCE), lambda: has_open(session_id) and not request.no_follow
        )
        async with aclosing(pages):  # So that nobody is thought to watch who has left.
            async for messages in pages:
                yield executor_pb2.WatchSessionResponse(messages=messages)

    async def GetQueueStats(
        self, request: executor_pb2.GetQueueStatsRequest, context: Context
    ) -> executor_pb2.GetQueueStatsResponse:
        """Counts by queue."""
        return executor_pb2.GetQueueStatsResponse(queues=queue_stats(self._executor))

    async def ListNodes(
        self, request: executor_pb2.ListNodesRequest, context: Context
    ) -> executor_pb2.ListNodesResponse:
        """Lists nodes by id."""
        nodes = sorted(self._executor.scheduler.nodes.values(), key=lambda node: node.node_id)
        return executor_pb2.ListNodesResponse(nodes=[node_info(node) for node in nodes])

    async def DrainNode(
        self, request: executor_pb2.DrainNodeRequest, context: Context
    ) -> executor_pb2.DrainNodeResponse:
        """Has a node take nothing new."""
        self._dispatcher.drain(request.node_id)
        return executor_pb2.DrainNodeResponse()


async def steer(stream: ConsumerStream, requests: AsyncIterator[executor_pb2.StreamTrajectoriesRequest]) -> None:
    """Carries out a consumer's acks and credits."""
    async for request in requests:
        match request.WhichOneof("frame"):
            case "ack":
                stream.ack(request.ack.cursor)
            case "credits":
                stream.grant(request.credits.credits)
            case "open":
                raise InvalidArgument({"open": "came before; a stream opens once, in its first frame"})


def check_query(request: executor_pb2.QueryTrajectoriesRequest) -> None:
    """Raises InvalidArgument with every field that is wrong."""
    wrong = dict(filter_faults(request.filter))
    if request.limit < 0:
        wrong["limit"] = "is negative; give 0 for all"
    if len(request.rollout_ids) > MAX_TASKS:
        wrong["rollout_ids"] = f"has {len(request.rollout_ids)} ids; give at most {MAX_TASKS}"
    if wrong:
        raise InvalidArgument(wrong)


def check_labels(labels: Mapping[str, str]) -> None:
    """Raises InvalidArgument when there are too many to look for."""
    if wrong := dict(label_faults(labels)):
        raise InvalidArgument(wrong)


def check_text(field: str, text: str, most: int) -> None:
    """Raises InvalidArgument when a text is too long to be kept, or logged."""
    if len(text) > most:
        raise InvalidArgument({field: f"has {len(text)} characters; give at most {most}"})
