"""The sending side of one node's stream: what is said between two frames travels in one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from practicum.common.errors import PracticumError
from practicum.v1 import dispatch_pb2

MAX_FRAME_BYTES = 4 * 1024 * 1024


class NodeLink:
    """Collects what a node is to be told, and hands it out frame by frame."""

    def __init__(self, node_id: str, incarnation: str) -> None:
        self.node_id = node_id
        self.incarnation = incarnation
        self._frames: list[dispatch_pb2.ConnectResponse] = []
        self._size = 0
        self._wake = asyncio.Event()
        self._ended = False
        self._error: PracticumError | None = None

    def tell(self, frame: dispatch_pb2.ConnectResponse) -> None:
        """Adds to what is sent next."""
        if size := frame.ByteSize():
            self.room(size).MergeFrom(frame)

    def room(self, size: int) -> dispatch_pb2.ConnectResponse:
        """The frame that the caller adds about so many bytes to at once: the next, or one after it if that is full."""
        if not self._frames or self._size + size > MAX_FRAME_BYTES:
            self._frames.append(dispatch_pb2.ConnectResponse())
            self._size = 0
        self._size += size
        self._wake.set()
        return self._frames[-1]

    def end(self, error: PracticumError | None = None) -> None:
        """Ends the stream after what was told so far, with an error if one is given."""
        self._ended, self._error = True, error
        self._wake.set()

    async def frames(self) -> AsyncIterator[dispatch_pb2.ConnectResponse]:
        """Frames as they come, until the end."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            frames, self._frames = self._frames, []
            for frame in frames:
                yield frame
            if self._ended:
                break
        if self._error is not None:
            raise self._error
