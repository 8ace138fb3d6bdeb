"""Named consumers of trajectories: each has its position, its credits and one stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import partial

import structlog

from practicum.common.errors import Aborted, FailedPrecondition, InvalidArgument, PracticumError
from practicum.executor.bell import Bell
from practicum.executor.core import Executor
from practicum.executor.delivery.filters import Wanted, filter_faults
from practicum.executor.delivery.trajectories import Event, events_of, frames, put_all
from practicum.executor.names import NAME
from practicum.executor.stopping import stopping
from practicum.executor.store.changes import Consumer, ForgetConsumer, OpenConsumer
from practicum.executor.store.cursors import end_of, number_of
from practicum.executor.store.results import Result
from practicum.v1 import executor_pb2

log = structlog.get_logger(__name__)

DEFAULT_CREDITS = 64
PAGE = 256


class ConsumerStream:
    """One consumer's open stream."""

    def __init__(self, executor: Executor, consumer: Consumer, credits: int) -> None:
        self._executor = executor
        self._bell: Bell = executor.events
        self._consumer = consumer
        self._wanted = Wanted.of(executor_pb2.TrajectoryFilter.FromString(consumer.filter))
        self._position = consumer.cursor
        self._sent = self._acked = consumer.cursor
        self._credits = credits
        self._error: PracticumError | None = None
        self._ended = False
        self._closing = False
        self._kept = consumer.cursor

    def grant(self, credits: int) -> None:
        """Allows so many further events."""
        if credits < 1:
            raise InvalidArgument({"credits.credits": f"is {credits}; grant at least 1"})
        self._credits += credits
        self._bell.ring()

    def ack(self, cursor: int) -> None:
        """Everything up to a cursor was taken care of."""
        if cursor < 0:
            raise InvalidArgument({"ack.cursor": f"is {cursor}; ack the cursor of an event"})
        if self._ended:
            return  # Another stream, or another consumer, has that name by now.
        if cursor > self._sent:
            detail = f"cursor {cursor} was acked, and {self._sent} is the last that was sent"
            raise FailedPrecondition(detail, reason="CURSOR_AHEAD")
        if cursor > self._acked:
            self._acked = cursor
            # Nobody waits for an ack to be on disk, and what a crash forgets comes again.
            batch = self._executor.writer.gather_later()
            batch.acks[self._consumer.name] = cursor
            batch.then(partial(self._keep, cursor))

    def _keep(self, cursor: int) -> None:
        self._kept = cursor

    @property
    def acked(self) -> int:
        """The last cursor that was acked."""
        return self._acked

    @property
    def done(self) -> int:
        """The cursor up to which nothing is left to do: acked, or not wanted."""
        return self._position if self._acked == self._sent else self._acked

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
                yield put_all(frame, executor_pb2.StreamTrajectoriesResponse())
            if not events and self._closing:
                break
            if not events and not self._ended:
                await news.wait()
        if self._kept < self._acked:
            await self._executor.writer.gather().done()  # A stream that ends in order leaves its last ack on disk.
        if self._error is not None:
            raise self._error

    async def _next_events(self) -> list[Event]:
        """The next events that are wanted; none when there is nothing now, or there are no credits."""
        while self._credits > 0:
            results = await self._next_results(min(self._credits, PAGE))
            if not results:
                break
            events = list(events_of(results, self._wanted, after=self._position))
            allowed = within(events, self._credits)
            self._position = allowed[-1].cursor if len(allowed) < len(events) else end_of(results[-1].number)
            if allowed:
                return allowed
        return []

    async def _next_results(self, limit: int) -> Sequence[Result]:
        recent = self._executor.recent.after(self._position, limit)
        if recent is not None:
            return recent
        return await asyncio.to_thread(self._executor.store.results_after, self._position, limit)


def check_open(request: executor_pb2.OpenConsumer) -> None:
    """Raises InvalidArgument with every field that is wrong."""
    wrong = {f"open.{field}": text for field, text in filter_faults(request.filter)}
    if not request.consumer:
        wrong["open.consumer"] = "is empty; name the consumer, so that its position is kept"
    elif not NAME.fullmatch(request.consumer):
        wrong["open.consumer"] = f"must match {NAME.pattern}"
    if request.credits < 0:
        wrong["open.credits"] = f"is {request.credits}; give how many events may be sent, or 0 for {DEFAULT_CREDITS}"
    if request.from_cursor < -1:
        wrong["open.from_cursor"] = f"is {request.from_cursor}; give a cursor, 0 for the oldest, or -1 for what comes"
    if wrong:
        raise InvalidArgument(wrong)


def within(events: Sequence[Event], credits: int) -> list[Event]:
    """As many of the first events as credits allow; the parts of one trajectory stay together."""
    allowed = list(events[:credits])
    for event in events[credits:]:
        if event.cursor != allowed[-1].cursor:
            break
        allowed.append(event)
    return allowed


class Consumers:
    """The streams that are open, by name."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._streams: dict[str, ConsumerStream] = {}
        self._stopping = False

    async def open(self, request: executor_pb2.OpenConsumer) -> ConsumerStream:
        """Opens a consumer's stream where it last acked; an older stream of that name ends."""
        check_open(request)
        wanted = request.filter.SerializeToString(deterministic=True)
        asked = Consumer(request.consumer, wanted, request.from_cursor)
        kept: Consumer = await self._executor.writer.make(OpenConsumer(asked))
        if kept.filter != wanted:
            reason = "differs from the filter that this consumer was first opened with; give it another name"
            raise InvalidArgument({"open.filter": reason})
        if (older := self._streams.get(kept.name)) is not None:
            older.end(Aborted(f"a newer stream of consumer {kept.name} was opened", reason="CONSUMER_TAKEN_OVER"))
        stream = ConsumerStream(self._executor, kept, request.credits or DEFAULT_CREDITS)
        self._streams[kept.name] = stream
        log.info("consumer_opened", consumer=kept.name, cursor=kept.cursor)
        if self._stopping:
            stream.end(stopping())
        return stream

    def check_serving(self) -> None:
        """Raises Unavailable at shutdown, for who reads on without a name."""
        if self._stopping:
            raise stopping()

    @property
    def connected(self) -> Collection[str]:
        """The names with an open stream."""
        return self._streams.keys()

    def lags(self, acked: Mapping[str, int]) -> dict[str, int]:
        """How many results each consumer has before it; `acked`: what the store knows, of those without a stream."""
        done = dict(acked) | {name: stream.done for name, stream in self._streams.items()}
        return {name: max(self._executor.last_result - number_of(cursor), 0) for name, cursor in done.items()}

    def closed(self, name: str, stream: ConsumerStream) -> None:
        """A stream ended."""
        log.info("consumer_closed", consumer=name, cursor=stream.acked)
        if self._streams.get(name) is stream:
            del self._streams[name]

    async def forget(self, name: str) -> None:
        """Drops a consumer and its position. Raises InvalidArgument when none may have that name."""
        if not NAME.fullmatch(name):
            raise InvalidArgument({"consumer": f"must match {NAME.pattern}"})
        if (stream := self._streams.pop(name, None)) is not None:
            stream.end(Aborted(f"consumer {name} was deleted", reason="CONSUMER_DELETED"))
        await self._executor.writer.make(ForgetConsumer(name))
        log.info("consumer_deleted", consumer=name)

    def end_streams(self) -> None:
        """At shutdown: consumers are told to come back."""
        self._stopping = True
        for stream in self._streams.values():
            stream.end(stopping())
