"""Which sessions are open, in which attempt, and how long their records are kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from practicum.common.errors import FailedPrecondition
from practicum.inference_proxy.errors import session_unknown, stale_attempt
from practicum.inference_proxy.session import Session

log = structlog.get_logger(__name__)

FORGET_SECONDS = 60.0
IDLE_SECONDS = 3600.0
CLOSED_SECONDS = 600.0
"""How long a closed session answers repeats."""


@dataclass(slots=True)
class Entry:
    """A session and its lifecycle."""

    session: Session
    used: float
    closed: bool = False
    in_flight: int = 0
    """Calls under way."""

    def expired(self, now: float) -> bool:
        """Whether it may be forgotten."""
        return self.in_flight == 0 and now - self.used > (CLOSED_SECONDS if self.closed else IDLE_SECONDS)


class Sessions:
    """All sessions of this process, by id. The newest attempt wins."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[str, Entry] = {}

    def open(self, session_id: str, *, attempt: int, agent_id: str) -> Session:
        """Opens, or finds what is open. A higher attempt begins anew."""
        entry = self._entries.get(session_id)
        if entry is None or attempt > entry.session.attempt:
            entry = Entry(Session(session_id, attempt=attempt, agent_id=agent_id), self._clock())
            self._entries[session_id] = entry
        refuse_stale(entry, attempt)
        if entry.closed:
            raise FailedPrecondition(f"session {session_id!r} is closed", reason="SESSION_CLOSED")
        entry.used = self._clock()
        return entry.session

    def get(self, session_id: str, attempt: int) -> Session:
        """The open session."""
        entry = self._find(session_id, attempt)
        if entry.closed:
            raise session_unknown(session_id)
        return entry.session

    def check(self, session: Session) -> None:
        """Raises unless the session is still the open one: a call's result may come too late."""
        if self.get(session.session_id, session.attempt) is not session:
            raise session_unknown(session.session_id)

    @contextmanager
    def call(self, session: Session) -> Iterator[None]:
        """While a call runs, its session is not idle, however long that takes."""
        entry = self._entries[session.session_id]
        entry.in_flight += 1
        try:
            yield
        finally:
            entry.in_flight -= 1
            entry.used = self._clock()

    def close(self, session_id: str, attempt: int, *, discard: bool) -> Session:
        """Closes, and answers with the record. A repeat answers the same for ten minutes."""
        entry = self._find(session_id, attempt)
        if discard:
            entry.session = Session(session_id, attempt=attempt, agent_id=entry.session.agent_id)
        if not entry.closed:
            entry.closed, entry.used = True, self._clock()
        return entry.session

    def forget_expired(self) -> int:
        """Forgets what expired; answers how many."""
        now = self._clock()
        expired = [session_id for session_id, entry in self._entries.items() if entry.expired(now)]
        for session_id in expired:
            del self._entries[session_id]
        return len(expired)

    def open_count(self) -> int:
        """How many are open."""
        return sum(not entry.closed for entry in self._entries.values())

    def _find(self, session_id: str, attempt: int) -> Entry:
        entry = self._entries.get(session_id)
        if entry is None:
            raise session_unknown(session_id)
        refuse_stale(entry, attempt)
        if attempt > entry.session.attempt:
            raise session_unknown(session_id)
        return entry


def refuse_stale(entry: Entry, attempt: int) -> None:
    """A node that was cut off can't act twice."""
    newest = entry.session.attempt
    if attempt < newest:
        raise stale_attempt(entry.session.session_id, attempt=attempt, newest=newest)


async def forget_sessions(sessions: Sessions) -> None:
    """Forgets what expired, over and over, until it is cancelled."""
    while True:
        await asyncio.sleep(FORGET_SECONDS)
        if forgotten := sessions.forget_expired():
            log.info("sessions_forgotten", sessions=forgotten)
