"""The policy version that is served: a counter that never falls, and those who watch it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator


class Policy:
    """Version and path, relative to the weights root; version 0 is the model as the engine was started."""

    def __init__(self) -> None:
        self.version = 0
        self.path = ""
        self._closed = False
        self._changed = asyncio.Event()

    def publish(self, version: int, path: str) -> None:
        """Sets the version and wakes the watchers."""
        self.version, self.path = version, path
        self._wake()

    def close(self) -> None:
        """Ends the watchers."""
        self._closed = True
        self._wake()

    async def watch(self) -> AsyncIterator[int]:
        """The version now, and each later one; a slow watcher skips to the newest."""
        seen = -1
        while not self._closed:
            changed = self._changed
            if seen != self.version:
                seen = self.version
                yield seen
            await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
