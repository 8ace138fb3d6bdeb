"""Named consumers of trajectories: each has its position, its credits and one stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from practicum.common.errors import Aborted, FailedPrecondition, InvalidArgument, PracticumError, Unavailable
from practicum.executor.bell import Bell
from practicum.executor.changes import AckConsumer, Consumer, ForgetConsumer, OpenConsumer
from practicum.executor.core import Executor
from practicum.executor.store import StoredEvent
from practicum.executor.trajectories import frames, wants
from practicum.v1 import executor_pb2

DEFAULT_CREDITS = 64
PAGE = 256


class ConsumerStream:
    """One consumer's open stream."""

    def __init__(self, executor: Executor, consumer: Consumer, credits: int) -> None:
        self._executor = executor
        self._bell: Bell = executor.events
        self._consumer = consumer
        self._wanted = executor_pb2.TrajectoryFilter.FromString(consumer.filter)
        self._position = consumer.cursor
        self._sent = consumer.cursor
        self._credits = credits
        self._error: PracticumError | None = None
        self._ended = False
        self._closing = False
        self._acked: asyncio.Future[None] | None = None

    def grant(self, credits: int) -> None:
        """Allows so many further events."""
        self._credits += max(credits, 0)
        self._bell.ring()

    def ack(self, cursor: int) -> None:
        """Everything up to a cursor was taken care of."""
        if cursor > self._sent:
            detail = f"cursor {cursor} was acked, and {self._sent} is the last that was sent"
            raise FailedPrecondition(detail, reason="CURSOR_AHEAD")
        self._acked = self._executor.writer.enqueue(AckConsumer(self._consumer.name, cursor))

    def reader_ended(self, error: PracticumError | None) -> None:
        """The consumer closed its side (it gets what is there now), or said something wrong."""
        if error is not None:
            self.end(error)
        self._closing = True
        self._bell.ring()

    def end(self, error: PracticumError | None = None) -> None:
        """Ends the stream."""
        self._ended, self._error = True, error
        self._bell.ring()

    async def frames(self) -> AsyncIterator[executor_pb2.StreamTrajectoriesResponse]:
        """Frames as credits and events come, until the end."""
        while not self._ended:
            news = self._bell.next
            events = await self._next_events()
            for frame in frames(events):
                self._credits -= len(frame)
                self._sent = frame[-1].cursor
                yield executor_pb2.StreamTrajectoriesResponse(events=frame)
            if not events and self._closing:
                break
            if not events and not self._ended:
                await news.wait()
        if self._acked is not None:
            await self._acked  # A stream that ends in order leaves its last ack on disk.
        if self._error is not None:
            raise self._error

    async def _next_events(self) -> list[StoredEvent]:
        """The next page with something wanted in it; empty when there is nothing now, or there are no credits."""
        while self._credits > 0:
            limit = min(self._credits, PAGE)
            page = await asyncio.to_thread(self._executor.store.events_after, self._position, limit)
            if not page:
                break
            self._position = page[-1].cursor
            if wanted := [event for event in page if wants(self._wanted, event)]:
                return wanted
        return []


class Consumers:
    """The streams that are open, by name."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._streams: dict[str, ConsumerStream] = {}
        self._stopping = False

    async def open(self, request: executor_pb2.OpenConsumer) -> ConsumerStream:
        """Opens a consumer's stream where it last acked; an older stream of that name ends."""
        if not request.consumer:
            raise InvalidArgument({"open.consumer": "is empty; name the consumer, so that its position is kept"})
        wanted = request.filter.SerializeToString(deterministic=True)
        asked = Consumer(request.consumer, wanted, request.from_cursor)
        kept: Consumer = await self._executor.writer.write(OpenConsumer(asked))
        if kept.filter != wanted:
            reason = "differs from the filter that this consumer was first opened with; give it another name"
            raise InvalidArgument({"open.filter": reason})
        if (older := self._streams.get(kept.name)) is not None:
            older.end(Aborted(f"a newer stream of consumer {kept.name} was opened", reason="CONSUMER_TAKEN_OVER"))
        stream = ConsumerStream(self._executor, kept, request.credits or DEFAULT_CREDITS)
        self._streams[kept.name] = stream
        if self._stopping:
            stream.end(stopping())
        return stream

    def closed(self, name: str, stream: ConsumerStream) -> None:
        """A stream ended."""
        if self._streams.get(name) is stream:
            del self._streams[name]

    async def forget(self, name: str) -> None:
        """Drops a consumer and its position."""
        if (stream := self._streams.pop(name, None)) is not None:
            stream.end(Aborted(f"consumer {name} was deleted", reason="CONSUMER_DELETED"))
        await self._executor.writer.write(ForgetConsumer(name))

    def end_streams(self) -> None:
        """At shutdown: consumers are told to come back."""
        self._stopping = True
        for stream in self._streams.values():
            stream.end(stopping())


def stopping() -> Unavailable:
    """Tells a client to come back."""
    return Unavailable("the executor stops", reason="DRAINING", retry_after_seconds=1.0)
