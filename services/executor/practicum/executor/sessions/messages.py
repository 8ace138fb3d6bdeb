"""Says Messages into sessions, and brings what is said to those who are to have it.

Everything is in the session's journal before anybody gets it. Subscriptions get what they want; the node that runs the
session gets what others than its agents say, and decides who of its agents is meant. While no node runs the session, it
waits in the journal, and the next one is given it with its assignment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from practicum.common.errors import FailedPrecondition, NotFound, PracticumError
from practicum.executor.core import Executor
from practicum.executor.dispatching.link import NodeLink
from practicum.executor.scheduling.scheduler import Lease
from practicum.executor.sessions.envelope import (
    ERROR,
    RECEIVER_DEAD,
    answers,
    check_message,
    check_subscribe,
    complete,
    error_reply,
)
from practicum.executor.sessions.inbox import frames_of
from practicum.executor.sessions.journal import MAX_SEQUENCE, Tail
from practicum.executor.sessions.subscriptions import Subscription, Subscriptions
from practicum.v1 import dispatch_pb2, executor_pb2, message_pb2


class Messages:
    """What is said in sessions, on its way."""

    def __init__(self, executor: Executor, links: Mapping[str, NodeLink]) -> None:
        self._executor = executor
        self._journal = executor.journal
        self._rollouts = executor.scheduler.rollouts
        self._links = links
        self._subscriptions = Subscriptions()
        self._tasks: set[asyncio.Task[None]] = set()
        self._journal.hearer = self
        self._journal.is_open = self._rollouts.__contains__

    async def send(
        self, message: message_pb2.Message, *, traceparent: str = ""
    ) -> tuple[int, message_pb2.ErrorPayload | None]:
        """Says something into an open session. Returns its place in the journal, where it is on disk.

        Of a repeat also the error that it was answered with, if it was.
        """
        message.DiscardUnknownFields()  # Nested deeply they could be stored, and read by nobody in their frames.
        check_message(message)
        complete(message, traceparent)
        tail = await self._journal.tail(message.session_id)
        if tail is None:
            sequence = await self._said_before(message)
            return sequence, await self._journal.error_about(message, sequence)
        repeated = message.id in tail.places
        self._journal.add([message])
        await self._executor.writer.gather().done()  # A repeat waits too: the first may not be on disk yet.
        sequence = tail.places[message.id]
        answered = repeated and message.id in tail.settled
        return sequence, await self._journal.error_about(message, sequence) if answered else None

    async def record(self, node_id: str, messages: Iterable[message_pb2.Message]) -> None:
        """Journals what a node says in sessions that it runs; the rest is dropped."""
        own = [message for message in messages if self._is_of(node_id, message)]
        tails = {session_id: await self._journal.tail(session_id) for session_id in {m.session_id for m in own}}
        self._journal.add(m for m in own if not settled(tails[m.session_id], m))

    @asynccontextmanager
    async def subscription(self, request: executor_pb2.SubscribeRequest) -> AsyncIterator[Subscription]:
        """A subscription, for as long as the context lasts."""
        check_subscribe(request)
        session_id = request.session_id
        if not await self._is_known(session_id):
            raise session_unknown(session_id)
        await self._journal.tail(session_id)  # So that what waits there is answered at the session's end.
        asked = request.from_sequence if request.HasField("from_sequence") else None
        subscription = Subscription(
            receiver=request.receiver,
            topics=request.topics,
            read=lambda sequence: self._journal.page(session_id, sequence),
            from_sequence=None if asked is None else min(max(asked, 1), MAX_SEQUENCE),
        )
        self._subscriptions.add(session_id, subscription)
        if not self._executor.has_open(session_id):
            subscription.end()
        try:
            yield subscription
        finally:
            self._subscriptions.remove(session_id, subscription)

    def end_streams(self, error: PracticumError) -> None:
        """At shutdown: subscribers and watchers are told to come back."""
        self._subscriptions.end_all(error)
        self._journal.end_watches(error)

    def reconnected(self, link: NodeLink, leases: Sequence[Lease]) -> None:
        """A node is back, and goes on with these leases: what it was told on its older stream may not have arrived."""
        if leases:
            self._begin(self._tell_again(link, leases))

    def said(self, messages: Sequence[message_pb2.Message]) -> None:
        """Messages are on disk: who is to have them gets them."""
        for message in messages:
            named = self._subscriptions.offer(message) if self._subscriptions else False
            if not message.attempt or message.HasField("receiver"):
                self._pass_on(message, named=named)

    def ended(self, session_id: str, tail: Tail | None) -> None:
        """A session's end is on disk: its subscriptions end, and nobody is left waiting for an answer."""
        if tail is not None and tail.last_said and not self._was_told(tail):
            self._begin(self._bury(session_id, tail))
        elif self._subscriptions:
            self._subscriptions.end(session_id)

    def _pass_on(self, message: message_pb2.Message, *, named: bool) -> None:
        """Tells the node. Of what its own agents say, only what nobody outside takes: it knows whether they do."""
        tail = self._journal.open_tail(message.session_id)
        if tail is None:
            return
        if named:
            tail.settled.add(message.id)
        rollout = self._rollouts.get(message.session_id)
        link = self._links.get(rollout.node_id) if rollout is not None and rollout.node_id is not None else None
        own = message.attempt > 0
        if link is not None and tail.told is link and not (own and (named or message.category == ERROR)):
            link.tell(dispatch_pb2.ConnectResponse(messages=[message]))

    async def _tell_again(self, link: NodeLink, leases: Sequence[Lease]) -> None:
        standing = self._executor.scheduler.leases
        for lease in leases:
            tail, said = await self._journal.said(lease.rollout_id)
            if tail is not None and self._links.get(link.node_id) is link and lease.lease_id in standing:
                tell_all(link, tail, said)

    def _was_told(self, tail: Tail) -> bool:
        """Whether all that was said by others reached a node whose stream still stands."""
        return isinstance(tail.told, NodeLink) and self._links.get(tail.told.node_id) is tail.told

    async def _bury(self, session_id: str, tail: Tail) -> None:
        """Answers what was said to receivers that nobody can reach any more."""
        try:
            said = await self._journal.said_before(session_id, tail)
            dead = [m for m in said if m.HasField("receiver") and m.category != ERROR and m.id not in tail.settled]
            self._journal.add_last(tail, [error_reply(message, RECEIVER_DEAD) for message in dead])
            await self._executor.writer.gather().done()
        finally:
            self._subscriptions.end(session_id)

    async def _said_before(self, message: message_pb2.Message) -> int:
        """For a session that is not open: the place of a repeat. Raises NotFound or FailedPrecondition."""
        session_id, store = message.session_id, self._executor.store
        if not await asyncio.to_thread(store.knows_session, session_id):
            raise session_unknown(session_id)
        known = await asyncio.to_thread(store.message_ids, session_id)
        if message.id not in known:
            raise FailedPrecondition(f"session {session_id} has ended", reason="SESSION_ENDED")
        return known[message.id]

    async def _is_known(self, session_id: str) -> bool:
        store = self._executor.store
        return self._executor.has_open(session_id) or await asyncio.to_thread(store.knows_session, session_id)

    def _is_of(self, node_id: str, message: message_pb2.Message) -> bool:
        """Whether a node says it in an attempt that is its own; notes the attempt if the node did not."""
        rollout = self._rollouts.get(message.session_id)
        if rollout is None or rollout.node_id != node_id:
            return False
        message.attempt = message.attempt or rollout.attempt
        return message.attempt == rollout.attempt

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def settled(tail: Tail | None, message: message_pb2.Message) -> bool:
    """Whether it is an error Message about something that was taken, or answered, before. Notes what it answers."""
    answered = answers(message)
    if tail is None or not answered:
        return False
    if answered in tail.settled:
        return True
    tail.settled.add(answered)
    return False


def tell_all(link: NodeLink, tail: Tail, said: Iterable[message_pb2.Message]) -> None:
    """Tells a node what others said in a session so far; it is told the rest as it comes."""
    tail.told = link
    for frame in frames_of(sorted(said, key=lambda message: (message.priority, message.sequence))):
        link.tell(dispatch_pb2.ConnectResponse(messages=frame))


def session_unknown(session_id: str) -> NotFound:
    """Tells that there is no such session."""
    return NotFound(f"no session {session_id!r} is known", reason="SESSION_UNKNOWN")
