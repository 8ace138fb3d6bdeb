"""What a node has to tell the executor, kept until it is taken care of; what is said meanwhile shares a frame."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeVar

from practicum.v1 import dispatch_pb2, message_pb2

MAX_FRAME_BYTES = 1024 * 1024

Said = TypeVar("Said", message_pb2.Message, dispatch_pb2.Finished)


@dataclass(frozen=True, slots=True)
class Upload:
    """A trajectory too large to travel inline."""

    lease_id: str
    digest: str
    body: bytes


@dataclass(slots=True)
class Outbox:
    """Messages of leases that are held, and results that are not acked.

    After a broken stream both are said again: the executor drops repeated messages by id, and results by lease.
    """

    _messages: dict[str, list[message_pb2.Message]] = field(default_factory=dict)
    _finished: dict[str, dispatch_pb2.Finished] = field(default_factory=dict)
    _uploads: dict[str, Upload] = field(default_factory=dict)
    _repeating: set[str] = field(default_factory=set)
    """Leases whose upload comes again; their results wait for it."""
    _fresh_messages: list[message_pb2.Message] = field(default_factory=list)
    _fresh_finished: list[dispatch_pb2.Finished] = field(default_factory=list)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _empty: asyncio.Event = field(default_factory=asyncio.Event)

    def hold(self, lease_id: str) -> None:
        """A lease began."""
        self._messages[lease_id] = []

    def say(self, lease_id: str, message: message_pb2.Message) -> None:
        """A Message of a session; dropped when its lease is no longer held."""
        if lease_id in self._messages:
            self._messages[lease_id].append(message)
            self._fresh_messages.append(message)
            self._wake.set()

    def finish(self, finished: dispatch_pb2.Finished) -> None:
        """A result; dropped when its lease is no longer held."""
        if finished.lease_id in self._messages:
            self._finished[finished.lease_id] = finished
            if finished.lease_id not in self._repeating:
                self._fresh_finished.append(finished)
                self._wake.set()

    def keep(self, upload: Upload) -> None:
        """Keeps what a result names until it is acked: an executor that is killed has lost it."""
        if upload.lease_id in self._messages:
            self._uploads[upload.lease_id] = upload

    @property
    def uploads(self) -> list[Upload]:
        """What results name that are not acked."""
        return list(self._uploads.values())

    def uploaded(self, lease_id: str) -> None:
        """An upload came again: its result may follow."""
        self._repeating.discard(lease_id)
        if (finished := self._finished.get(lease_id)) is not None:
            self._fresh_finished.append(finished)
            self._wake.set()

    def owes(self, lease_id: str) -> bool:
        """Whether a lease is held and has no result."""
        return lease_id in self._messages and lease_id not in self._finished

    def forget(self, lease_id: str) -> None:
        """A result was acked, or its lease is lost."""
        self._messages.pop(lease_id, None)
        self._finished.pop(lease_id, None)
        self._uploads.pop(lease_id, None)
        self._repeating.discard(lease_id)
        self._empty.set()

    def held(self) -> list[str]:
        """The leases that are held: at work, or with a result that is not acked."""
        return list(self._messages)

    def say_again(self) -> None:
        """The stream broke: what was said may not have arrived, and what was uploaded may be lost."""
        self._repeating = set(self._uploads)
        self._fresh_messages = [message for told in self._messages.values() for message in told]
        self._fresh_finished = [told for told in self._finished.values() if told.lease_id not in self._repeating]
        self._wake.set()

    def wake(self) -> None:
        """There is something to say that isn't kept here."""
        self._wake.set()

    async def wait(self, timeout: float) -> None:
        """Until there is something to say, or a time has passed."""
        try:
            async with asyncio.timeout(timeout):
                await self._wake.wait()
        except TimeoutError:
            return

    async def emptied(self, *, timeout: float) -> None:
        """Until every result is acked, or a time has passed."""
        try:
            async with asyncio.timeout(timeout):
                while self._finished:
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:
            return

    def take(self) -> dispatch_pb2.ConnectRequest:
        """What is new, as one frame of about MAX_FRAME_BYTES; the rest has to be taken again.

        Messages go first: a result ends its session's journal.
        """
        frame = dispatch_pb2.ConnectRequest(messages=shift(self._fresh_messages, MAX_FRAME_BYTES))
        if not self._fresh_messages:
            frame.finished.extend(shift(self._fresh_finished, MAX_FRAME_BYTES - frame.ByteSize()))
        if not self._fresh_messages and not self._fresh_finished:
            self._wake.clear()
        return frame


def shift(waiting: list[Said], max_bytes: int) -> list[Said]:
    """Takes out as many of the first as fit, and at least one."""
    ends = accumulate(item.ByteSize() for item in waiting)
    taken = next((count for count, end in enumerate(ends, start=1) if end >= max_bytes), len(waiting))
    first = waiting[:taken]
    del waiting[:taken]
    return first
