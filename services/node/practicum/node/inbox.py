"""What was said to an agent and not received yet: the lower priority first, equals as they came."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count

from practicum.v1 import message_pb2

MAX_MESSAGES = 10_000
MAX_BYTES = 16 * 1024 * 1024


class Inbox:
    """One agent's. Bounded, because an agent may never look into it."""

    def __init__(self, *, max_messages: int = MAX_MESSAGES, max_bytes: int = MAX_BYTES) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._bytes = 0
        self._waiting: list[tuple[int, int, message_pb2.Message]] = []
        self._arrivals = count()
        self._arrived = asyncio.Event()

    def put(self, message: message_pb2.Message) -> bool:
        """A message arrived; False when there is no room for it."""
        size = message.ByteSize()
        if len(self._waiting) >= self._max_messages or self._bytes + size > self._max_bytes:
            return False
        heappush(self._waiting, (message.priority, next(self._arrivals), message))
        self._bytes += size
        self._arrived.set()
        return True

    async def receive(self, *, timeout: float | None) -> message_pb2.Message | None:
        """Takes the first, or waits for it; None when nothing came within so many seconds."""
        if not self._waiting and not await self._filled(timeout):
            return None
        _, _, message = heappop(self._waiting)
        self._bytes -= message.ByteSize()
        return message

    async def _filled(self, timeout: float | None) -> bool:
        """Waits until there is something, or for so many seconds. Returns whether there is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self._waiting:
                    self._arrived.clear()
                    await self._arrived.wait()
        return bool(self._waiting)
