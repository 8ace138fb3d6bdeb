"""Journals of running sessions: gives each Message its place, drops repeats, wakes who watches."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field

from practicum.executor.bell import Bell
from practicum.executor.rows import JournalRow
from practicum.executor.store import SqlStore
from practicum.executor.writer import Writer
from practicum.v1 import message_pb2

PAGE = 256
# Messages that nodes send with other ids are dropped: nobody could tell their repeats apart.
MESSAGE_ID = re.compile(r"[^\x00-\x1f\x7f]{1,256}")


@dataclass(slots=True)
class Tail:
    """Where a session's journal ends, and which messages it has."""

    sequence: int
    message_ids: set[str] = field(default_factory=set)


class Journal:
    """The journals of all sessions."""

    def __init__(self, store: SqlStore, writer: Writer) -> None:
        self._store = store
        self._writer = writer
        self._tails: dict[str, Tail] = {}
        self._news = Bell()

    def begin(self, session_id: str) -> None:
        """A session's first attempt starts: its journal is empty."""
        self._tails.setdefault(session_id, Tail(0))

    async def append(self, messages: Iterable[message_pb2.Message]) -> None:
        """Puts Messages in line for their sessions' journals, before everything that is written later."""
        messages = list(messages)
        await self._load({m.session_id for m in messages} - self._tails.keys())
        rows = [row for message in messages if (row := self._place(message)) is not None]
        if rows:
            batch = self._writer.gather()
            batch.messages.extend(rows)
            batch.then(self._news.ring)

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

    async def watch(
        self, session_id: str, from_sequence: int, running: Callable[[], bool]
    ) -> AsyncIterator[list[message_pb2.Message]]:
        """Pages of a journal, and then what comes, for as long as `running` says that the session goes on."""
        sequence = max(from_sequence, 1)
        while True:
            more, news = running(), self._news.next
            page = await asyncio.to_thread(self._store.journal, session_id, sequence, PAGE)
            if page:
                yield [message_pb2.Message.FromString(body) for _, body in page]
                sequence = page[-1][0] + 1
            elif more:
                await news.wait()
            else:
                return

    def ended(self, session_ids: Iterable[str]) -> None:
        """Forgets the tails of sessions that ended, and lets their watchers go."""
        for session_id in session_ids:
            self._tails.pop(session_id, None)
        self._news.ring()

    async def _load(self, session_ids: Iterable[str]) -> None:
        """Finds where journals end that an earlier life of this executor began."""
        for session_id in session_ids:
            known = await asyncio.to_thread(self._store.message_ids, session_id)
            self._tails.setdefault(session_id, Tail(max(known.values(), default=0), set(known)))

    def _place(self, message: message_pb2.Message) -> JournalRow | None:
        tail = self._tails.get(message.session_id)
        if tail is None or message.id in tail.message_ids or not MESSAGE_ID.fullmatch(message.id):
            return None
        tail.sequence += 1
        tail.message_ids.add(message.id)
        message.sequence = tail.sequence
        return JournalRow(message.session_id, tail.sequence, message.id, message.SerializeToString())
