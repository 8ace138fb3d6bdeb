"""What waits to be read by one subscriber: the lower priority first, equals in the journal's order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from practicum.v1 import message_pb2

MAX_MESSAGES = 10_000
MAX_BYTES = 64 * 1024 * 1024
FRAME_BYTES = 1024 * 1024


class Inbox:
    """Bounded by number and by bytes."""

    def __init__(self, *, max_messages: int = MAX_MESSAGES, max_bytes: int = MAX_BYTES) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._bytes = 0
        self._waiting: list[tuple[int, int, int, message_pb2.Message]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: message_pb2.Message) -> bool:
        """Has a message of a journal wait; False when there is no room for it. There always is for a single one."""
        size = message.ByteSize()
        if self._waiting and (len(self._waiting) >= self._max_messages or self._bytes + size > self._max_bytes):
            return False
        heappush(self._waiting, (message.priority, message.sequence, size, message))
        self._bytes += size
        return True

    def take(self, max_bytes: int = FRAME_BYTES) -> list[message_pb2.Message]:
        """As many of the first as fit into a frame, and at least one; nothing when nothing waits."""
        taken: list[message_pb2.Message] = []
        left = max_bytes
        while self._waiting and (not taken or self._waiting[0][2] <= left):
            _, _, size, message = heappop(self._waiting)
            left -= size
            self._bytes -= size
            taken.append(message)
        return taken

    @property
    def half_full(self) -> bool:
        """Whether it is time to read before more is put."""
        return 2 * len(self._waiting) >= self._max_messages or 2 * self._bytes >= self._max_bytes


def frames_of(
    messages: Iterable[message_pb2.Message], max_bytes: int = FRAME_BYTES
) -> Iterator[list[message_pb2.Message]]:
    """Messages in their order, in lists of about so many bytes: no frame grows larger than clients take."""
    frame: list[message_pb2.Message] = []
    left = max_bytes
    for message in messages:
        size = message.ByteSize()
        if frame and size > left:
            yield frame
            frame, left = [], max_bytes
        frame.append(message)
        left -= size
    if frame:
        yield frame
