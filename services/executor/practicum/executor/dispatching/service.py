"""DispatchService over the dispatcher: frames in, frames out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from google.protobuf.duration_pb2 import Duration
from grpc import aio
from structlog.contextvars import bind_contextvars

from practicum.common.errors import InvalidArgument
from practicum.common.streams import reading
from practicum.executor.dispatching.dispatcher import Dispatcher
from practicum.executor.dispatching.frames import check_frame
from practicum.executor.dispatching.link import NodeLink
from practicum.v1 import dispatch_pb2, dispatch_pb2_grpc


class DispatchService(dispatch_pb2_grpc.DispatchServiceServicer):
    """The door for nodes. Each call is described in the .proto."""

    def __init__(self, dispatcher: Dispatcher, *, lease_seconds: float) -> None:
        self._dispatcher = dispatcher
        self._terms = dispatch_pb2.Registered(
            heartbeat_interval=seconds(lease_seconds / 3), lease_duration=seconds(lease_seconds)
        )

    async def Connect(
        self,
        request_iterator: AsyncIterator[dispatch_pb2.ConnectRequest],
        context: aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[dispatch_pb2.ConnectResponse]:
        """One node's stream."""
        first = await anext(aiter(request_iterator), dispatch_pb2.ConnectRequest())
        if not first.HasField("register"):
            raise InvalidArgument({"register": "the first frame has to register the node"})
        bind_contextvars(node_id=first.register.node_id)
        link = self._dispatcher.connect(first.register)
        try:
            yield dispatch_pb2.ConnectResponse(registered=self._terms)
            if self._dispatcher.serves(link):  # A node that reads slowly may have dialled in anew meanwhile.
                lost = self._dispatcher.register(first.register)
                link.tell(dispatch_pb2.ConnectResponse(lost_leases=lost))
            async with reading(self._read(link, request_iterator), link.end):
                async for frame in link.frames():
                    yield frame
        finally:
            self._dispatcher.disconnect(link)

    async def UploadTrajectory(
        self,
        request_iterator: AsyncIterator[dispatch_pb2.UploadTrajectoryRequest],
        context: aio.ServicerContext[Any, Any],
    ) -> dispatch_pb2.UploadTrajectoryResponse:
        """Keeps a large trajectory until its result names it."""
        size = await self._dispatcher.uploads.receive(request_iterator)
        return dispatch_pb2.UploadTrajectoryResponse(size_bytes=size)

    async def _read(self, link: NodeLink, requests: AsyncIterator[dispatch_pb2.ConnectRequest]) -> None:
        """Carries out what a node says."""
        async for request in requests:
            check_frame(request)
            if not self._dispatcher.serves(link):
                return
            self._dispatcher.hear(link)
            if request.messages:
                await self._dispatcher.record(link, request.messages)
                if not self._dispatcher.serves(link):
                    return
            if request.HasField("heartbeat"):
                self._dispatcher.heartbeat(link, request.heartbeat)
            if request.draining:
                self._dispatcher.drain(link.node_id)
            if request.finished:
                self._dispatcher.finish(link, request.finished)


def seconds(value: float) -> Duration:
    """A Duration."""
    duration = Duration()
    duration.FromNanoseconds(int(value * 1e9))
    return duration
