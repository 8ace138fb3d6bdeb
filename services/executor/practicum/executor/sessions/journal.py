"""Journals of open sessions: gives each Message its place, drops repeats, wakes who watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from practicum.common.errors import PracticumError
from practicum.executor.bell import Bells
from practicum.executor.names import NAME
from practicum.executor.sessions.envelope import answers
from practicum.executor.sessions.inbox import frames_of
from practicum.executor.store.rows import JournalRow
from practicum.executor.store.sql import SqlStore
from practicum.executor.store.writer import Writer
from practicum.v1 import message_pb2

PAGE = 256
MAX_SEQUENCE = 2**31 - 1


@dataclass(slots=True)
class Tail:
    """Where an open session's journal ends, and what of it is still to be brought to somebody."""

    sequence: int = 0
    places: dict[str, int] = field(default_factory=dict)
    """Where each Message stands, by id."""
    first_said: int = 0
    """The first place of what others than the session's agents said, as far as it is on disk; 0: they said nothing."""
    last_said: int = 0
    """The last such place."""
    settled: set[str] = field(default_factory=set)
    """Messages that somebody took who had subscribed to them by name, or that were answered with an error."""
    told: object = None
    """The stream on which a node was told all that others said, and is told more as it comes."""

    def note(self, message: message_pb2.Message) -> None:
        """Notes a Message that is on disk."""
        if not message.attempt:
            self.first_said = self.first_said or message.sequence
            self.last_said = message.sequence


class Hearer(Protocol):
    """Who brings on what is said."""

    def said(self, messages: Sequence[message_pb2.Message]) -> None:
        """Messages are on disk."""

    def ended(self, session_id: str, tail: Tail | None) -> None:
        """A session's end is on disk."""


class Journal:
    """The journals of all sessions."""

    def __init__(self, store: SqlStore, writer: Writer) -> None:
        self._store = store
        self._writer = writer
        self._tails: dict[str, Tail] = {}
        self._news = Bells()
        self._stopping: PracticumError | None = None
        self.hearer: Hearer | None = None
        self.is_open: Callable[[str], bool] = lambda session_id: True
        """Whether something may be said in a session."""

    @property
    def watched(self) -> Collection[str]:
        """Sessions that somebody watches."""
        return self._news.names

    def begin(self, session_id: str, stream: object) -> None:
        """A session's first attempt starts, of which a node was told on a stream; nothing was said in it."""
        self._tails.setdefault(session_id, Tail()).told = stream

    def open_tail(self, session_id: str) -> Tail | None:
        """An open session's tail, if something was said in it lately, or it was begun."""
        return self._tails.get(session_id)

    async def tail(self, session_id: str) -> Tail | None:
        """An open session's tail; None when the session is not open."""
        tail = self._tails.get(session_id)
        if tail is None and self.is_open(session_id):
            loaded = await self._load(session_id)
            if self.is_open(session_id):
                self._tails.setdefault(session_id, loaded)
        return self._tails.get(session_id) if self.is_open(session_id) else None

    def add(self, messages: Iterable[message_pb2.Message]) -> None:
        """Puts Messages in line for their sessions' journals, before everything that is written later.

        Repeats are dropped, and what belongs to no session whose tail is known.
        """
        placed = [(m, tail) for m in messages if (tail := self._tails.get(m.session_id)) is not None]
        self._write([row for m, tail in placed if (row := place(tail, m)) is not None])

    def add_last(self, tail: Tail, messages: Iterable[message_pb2.Message]) -> None:
        """The same, for a session that has just ended."""
        self._write([row for message in messages if (row := place(tail, message)) is not None])

    async def said(self, session_id: str) -> tuple[Tail | None, list[message_pb2.Message]]:
        """An open session's tail, and all that others than its agents said in it until the caller goes on."""
        tail = await self.tail(session_id)
        return tail, await self.said_before(session_id, tail) if tail is not None else []

    async def said_before(self, session_id: str, tail: Tail) -> list[message_pb2.Message]:
        """What others than its agents said in a session."""
        messages: list[message_pb2.Message] = []
        sequence = tail.first_said
        while 0 < sequence <= tail.last_said and (page := await self.page(session_id, sequence)):
            messages += [message for message in page if not message.attempt]
            sequence = page[-1].sequence + 1
        return messages

    async def read(self, session_id: str, *, max_bytes: int) -> list[message_pb2.Message]:
        """A session's whole journal; nothing when it is larger."""
        messages: list[message_pb2.Message] = []
        left = max_bytes
        async for page in self.watch(session_id, 1, lambda: False):
            messages += page
            left -= sum(message.ByteSize() for message in page)
            if left < 0:
                return []
        return messages

    async def error_about(self, message: message_pb2.Message, sequence: int) -> message_pb2.ErrorPayload | None:
        """The error that a Message at a place was answered with, if it was."""
        while page := await self.page(message.session_id, sequence + 1):
            if found := next((reply.error for reply in page if answers(reply) == message.id), None):
                return found
            sequence = page[-1].sequence
        return None

    async def watch(
        self, session_id: str, from_sequence: int, running: Callable[[], bool]
    ) -> AsyncGenerator[list[message_pb2.Message], None]:
        """A journal in frames, and then what comes, for as long as `running` says that the session goes on.

        Raises PracticumError when the executor stops before that.
        """
        sequence = max(from_sequence, 1)
        with self._news.listening(session_id) as bell:
            while True:
                more, news = running(), bell.next
                page = await self.page(session_id, sequence)
                for frame in frames_of(page):
                    yield frame
                    sequence = frame[-1].sequence + 1
                if not page and not more:
                    return
                if more and self._stopping is not None:
                    raise self._stopping
                if not page:
                    await news.wait()

    async def page(self, session_id: str, from_sequence: int) -> list[message_pb2.Message]:
        """The next Messages of a journal that are on disk."""
        rows = await asyncio.to_thread(self._store.journal, session_id, from_sequence, PAGE)
        return [message_pb2.Message.FromString(body) for _, body in rows]

    def ended(self, session_ids: Iterable[str]) -> None:
        """Forgets the tails of sessions that ended, and lets their watchers go."""
        over = list(session_ids)
        for session_id in over:
            tail = self._tails.pop(session_id, None)
            if self.hearer is not None:
                self.hearer.ended(session_id, tail)
        self._news.ring(over)

    def end_watches(self, error: PracticumError) -> None:
        """At shutdown: who follows a session is told to come back."""
        self._stopping = error
        self._news.ring(list(self._news.names))

    def _write(self, placed: Sequence[tuple[message_pb2.Message, JournalRow]]) -> None:
        if placed:
            batch = self._writer.gather()
            batch.messages.extend(row for _, row in placed)
            batch.then(lambda: self._on_disk([message for message, _ in placed]))

    def _on_disk(self, messages: Sequence[message_pb2.Message]) -> None:
        for message in messages:
            if (tail := self._tails.get(message.session_id)) is not None:
                tail.note(message)
        self._news.ring(message.session_id for message in messages)
        if self.hearer is not None:
            self.hearer.said(messages)

    async def _load(self, session_id: str) -> Tail:
        """Where a journal ends that an earlier life of this executor began."""
        tail = Tail()
        while page := await self.page(session_id, tail.sequence + 1):
            for message in page:
                tail.sequence = tail.places[message.id] = message.sequence
                tail.note(message)
                if answered := answers(message):
                    tail.settled.add(answered)
        return tail


def place(tail: Tail, message: message_pb2.Message) -> tuple[message_pb2.Message, JournalRow] | None:
    """Gives a Message its place at a journal's end; None when it is there already, or has an id that can't tell it
    from others."""
    if message.id in tail.places or not NAME.fullmatch(message.id):
        return None
    tail.sequence += 1
    tail.places[message.id] = message.sequence = tail.sequence
    return message, JournalRow(message.session_id, tail.sequence, message.id, message.SerializeToString())
