"""Wakes everybody who waits for news, without a queue for each."""

from __future__ import annotations

import asyncio


class Bell:
    """Take `next` before looking for news; if there is none, wait on it: a ring in between is not missed."""

    def __init__(self) -> None:
        self.next = asyncio.Event()

    def ring(self) -> None:
        """Wakes who waits now."""
        self.next.set()
        self.next = asyncio.Event()
