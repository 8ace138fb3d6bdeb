"""Wakes everybody who waits for news, without a queue for each."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager


class Bell:
    """Take `next` before looking for news; if there is none, wait on it: a ring in between is not missed."""

    def __init__(self) -> None:
        self.next = asyncio.Event()

    def ring(self) -> None:
        """Wakes who waits now."""
        self.next.set()
        self.next = asyncio.Event()


class Bells:
    """A bell for each name that somebody listens to, so that news of one wakes nobody who waits for another's."""

    def __init__(self) -> None:
        self._bells: dict[str, Bell] = {}
        self._listeners: dict[str, int] = {}

    @property
    def names(self) -> Collection[str]:
        """Those that somebody listens to."""
        return self._bells.keys()

    @contextmanager
    def listening(self, name: str) -> Iterator[Bell]:
        """A name's bell, for as long as the context lasts."""
        bell = self._bells.setdefault(name, Bell())
        self._listeners[name] = self._listeners.get(name, 0) + 1
        try:
            yield bell
        finally:
            self._listeners[name] -= 1
            if not self._listeners[name]:
                del self._bells[name], self._listeners[name]

    def ring(self, names: Iterable[str]) -> None:
        """Wakes who listens to one of these."""
        if self._bells:
            for name in {*names} & self._bells.keys():
                self._bells[name].ring()
