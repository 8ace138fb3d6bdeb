"""Who reads along in sessions: subscriptions by receiver and topic, each with an inbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

from practicum.common.errors import PracticumError, ResourceExhausted
from practicum.executor.sessions.inbox import Inbox
from practicum.v1 import message_pb2

Messages = Sequence[message_pb2.Message]


class Subscription:
    """What is said to a receiver and to all, or on a topic. While it is behind, it reads the journal instead."""

    def __init__(
        self,
        *,
        receiver: str,
        topics: Collection[str],
        read: Callable[[int], Awaitable[Messages]],
        from_sequence: int | None,
        inbox: Inbox | None = None,
    ) -> None:
        """`read`: a page of the journal from a place on. `from_sequence`: None for what is said from now on."""
        self.receiver = receiver
        self._topics = frozenset(topics)
        self._read = read
        self._position = 0 if from_sequence is None else from_sequence - 1
        self._behind = from_sequence is not None
        self._missed = False
        self._inbox = Inbox() if inbox is None else inbox
        self._wake = asyncio.Event()
        self._ended = False
        self._error: PracticumError | None = None

    def wants(self, message: message_pb2.Message) -> bool:
        """Whether a message is for it."""
        if self.receiver and (not message.HasField("receiver") or message.receiver == self.receiver):
            return True
        return message.HasField("topic") and message.topic in self._topics

    def offer(self, message: message_pb2.Message) -> None:
        """Something was said, and is on disk. Comes in the journal's order."""
        if self._behind:
            self._missed = True  # It is read from the journal.
        else:
            self._put(message)

    def end(self, error: PracticumError | None = None) -> None:
        """Ends it: after what waits was read, or at once with an error."""
        self._ended, self._error = True, self._error or error
        self._wake.set()

    async def frames(self) -> AsyncIterator[list[message_pb2.Message]]:
        """What is for it, as it comes, until the session ends."""
        while True:
            await self._catch_up()
            if self._error is not None:
                raise self._error
            if frame := self._inbox.take():
                yield frame
            elif self._ended:
                return
            else:
                await self._wake.wait()
                self._wake.clear()

    async def _catch_up(self) -> None:
        """Reads the journal to its end, or as much of it as there is room for."""
        while self._behind and not self._inbox.half_full:
            self._missed = False
            page = await self._read(self._position + 1)
            for message in page:
                if self._inbox.half_full:
                    break
                self._put(message)
            # What was said during the read may be on disk since: then it is read again.
            self._behind = bool(page) or self._missed

    def _put(self, message: message_pb2.Message) -> None:
        if message.sequence <= self._position:
            return
        self._position = message.sequence
        if self.wants(message) and not self._inbox.put(message):
            self.end(too_slow())
        self._wake.set()


class Subscriptions:
    """All that are open, by session."""

    def __init__(self) -> None:
        self._of_session: dict[str, list[Subscription]] = {}
        self._stopping: PracticumError | None = None

    def __bool__(self) -> bool:
        return bool(self._of_session)

    def add(self, session_id: str, subscription: Subscription) -> None:
        """From now on it is offered what is said."""
        self._of_session.setdefault(session_id, []).append(subscription)
        if self._stopping is not None:
            subscription.end(self._stopping)

    def remove(self, session_id: str, subscription: Subscription) -> None:
        """Nobody reads it any more."""
        left = [other for other in self._of_session.get(session_id, ()) if other is not subscription]
        if left:
            self._of_session[session_id] = left
        else:
            self._of_session.pop(session_id, None)

    def offer(self, message: message_pb2.Message) -> bool:
        """Offers what was said. Returns whether somebody subscribed under the receiver's name."""
        named = False
        for subscription in self._of_session.get(message.session_id, ()):
            subscription.offer(message)
            named |= message.HasField("receiver") and subscription.receiver == message.receiver
        return named

    def end(self, session_id: str) -> None:
        """A session ended, and all that was said in it was offered."""
        for subscription in self._of_session.get(session_id, ()):
            subscription.end()

    def end_all(self, error: PracticumError) -> None:
        """At shutdown: whoever reads is told to come back."""
        self._stopping = error
        for subscriptions in self._of_session.values():
            for subscription in subscriptions:
                subscription.end(error)


def too_slow() -> ResourceExhausted:
    """Tells a subscriber to come back."""
    detail = "too much waits to be read; subscribe again, from what was read last"
    return ResourceExhausted(detail, reason="SUBSCRIBER_TOO_SLOW", retry_after_seconds=1.0)
