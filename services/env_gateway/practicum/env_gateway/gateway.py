"""All sessions: who owns which, how many there may be, and their end."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from practicum.common.errors import InvalidArgument, ResourceExhausted
from practicum.env_gateway.calls import Call
from practicum.env_gateway.catalogue import Environment
from practicum.env_gateway.errors import (
    attempt_unknown,
    environment_unknown,
    scorer_unknown,
    session_unknown,
    stale_attempt,
)
from practicum.env_gateway.processes import Launcher
from practicum.env_gateway.scorers import SCORERS, Score
from practicum.env_gateway.sessions import Session, State, Wish
from practicum.v1 import message_pb2

log = structlog.get_logger(__name__)

# Ended sessions whose ids are remembered, so that late calls are told what became of them.
MAX_REMEMBERED = 10_000
ADMISSION_RETRY_SECONDS = 1.0


class Gateway:
    """The environments of a catalogue and the sessions opened on them. Methods are called from one event loop."""

    def __init__(
        self, environments: Mapping[str, Environment], launcher: Launcher, *, folder: Path, max_sessions: int
    ) -> None:
        """`folder`: where sessions have their files."""
        self.environments = environments
        self.launcher = launcher
        self._folder = folder
        self.opened_total = self.calls_total = self.lost_total = 0
        self._max_sessions = max_sessions
        self._open: dict[str, Session] = {}
        self._ended: dict[str, Session] = {}
        # A fresh server is a second of CPU; more at once than the cores can take would all time out together.
        self._slots = asyncio.Semaphore(4 * (os.cpu_count() or 1))

    async def open(self, session_id: str, attempt: int, wish: Wish, *, resume: bool) -> Session:
        """The session of this attempt: opened now, found again, or joined from an earlier attempt."""
        known = self._find(session_id)
        if known is not None and attempt < known.attempt:
            raise stale_attempt(attempt, known.attempt)
        if known is not None and (attempt == known.attempt or (resume and known.intact and session_id in self._open)):
            session = joined(known, attempt, wish)
        else:
            session = self._new(session_id, attempt, wish)
        await session.open(self._slots, after=known if known is not session else None)
        return session

    def peek(self, session_id: str) -> Session:
        """A session, whoever owns it; its idle limit stays."""
        session = self._find(session_id)
        if session is None:
            raise session_unknown(session_id)
        return session

    def session(self, session_id: str, attempt: int) -> Session:
        """A session for the attempt that owns it, which puts off the idle limit."""
        session = self.peek(session_id)
        if attempt < session.attempt:
            raise stale_attempt(attempt, session.attempt)
        if attempt > session.attempt:
            raise attempt_unknown(attempt, session.attempt)
        session.touch()
        return session

    async def close(self, session_id: str, attempt: int) -> None:
        """Closes a session; unknown and closed ones are closed already."""
        if self._find(session_id) is not None:
            await self.session(session_id, attempt).close()

    def call(self, session: Session, wanted: message_pb2.ToolCall, timeout_seconds: float | None) -> tuple[Call, bool]:
        """Starts a call, or finds the one that has this id; the flag says which."""
        call, known = session.call(wanted.call_id, wanted.name, wanted.arguments_json, timeout_seconds)
        self.calls_total += not known
        return call, known

    def score(self, session_id: str, attempt: int, answer: str, *, scorer: str, ground_truth: str) -> Score:
        """Scores an answer; from then on the session takes no calls."""
        session = self.session(session_id, attempt)
        session.require_open()
        name = scorer or session.wish.environment.scorer
        if name not in SCORERS:
            raise scorer_unknown(name, SCORERS)
        session.scored()
        return SCORERS[name](answer, ground_truth)

    def environment(self, name: str) -> Environment:
        """An environment of the catalogue."""
        if name not in self.environments:
            raise environment_unknown(name, self.environments)
        return self.environments[name]

    @property
    def open_sessions(self) -> int:
        """Sessions that hold servers, or will."""
        return len(self._open)

    @asynccontextmanager
    async def sweeping(self) -> AsyncIterator[None]:
        """Closes sessions that outlive their limits; at the end, all."""
        sweeper = asyncio.create_task(self._sweep())
        try:
            yield
        finally:
            sweeper.cancel()
            # Those that already end are waited for too.
            await close_all([*self._open.values(), *self._ended.values()])

    def _find(self, session_id: str) -> Session | None:
        return self._open.get(session_id) or self._ended.get(session_id)

    def _new(self, session_id: str, attempt: int, wish: Wish) -> Session:
        if self.open_sessions >= self._max_sessions and session_id not in self._open:
            raise ResourceExhausted(
                f"{self._max_sessions} sessions are open, which is all there may be",
                reason="ADMISSION",
                retry_after_seconds=ADMISSION_RETRY_SECONDS,
            )
        self._ended.pop(session_id, None)
        session = Session(session_id, attempt, wish, launcher=self.launcher, folder=self._folder, on_end=self._on_end)
        self._open[session_id] = session
        self.opened_total += 1
        return session

    def _on_end(self, session: Session) -> None:
        self.lost_total += session.state is State.LOST
        self.opened_total -= session.failed_to_open
        if self._open.get(session.id) is not session:  # A later attempt has taken its place.
            return
        del self._open[session.id]
        # One that never opened is forgotten: the caller may try again under the same attempt.
        if not session.failed_to_open:
            self._ended[session.id] = session
        if len(self._ended) > MAX_REMEMBERED:
            del self._ended[next(iter(self._ended))]

    async def _sweep(self) -> None:
        ttls = [min(one.limits.idle_ttl_seconds, one.limits.absolute_ttl_seconds) for one in self.environments.values()]
        while True:
            await asyncio.sleep(min([5.0, *(ttl / 4 for ttl in ttls)]))
            now = time.monotonic()
            expired = [session for session in self._open.values() if session.expired(now)]
            for session in expired:
                log.info("session_expired", session_id=session.id, attempt=session.attempt)
            await close_all(expired)


async def close_all(sessions: Iterable[Session]) -> None:
    """Closes sessions at once: each may take its grace."""
    await asyncio.gather(*(session.close() for session in sessions))


def joined(session: Session, attempt: int, wish: Wish) -> Session:
    """A known session for an attempt, if it is what the attempt asks for."""
    session.require(State.QUEUED, State.OPENING, State.READY, State.SCORED)
    if session.wish != wish:
        raise InvalidArgument({"environment": f"session {session.id} was opened with another environment"})
    if attempt > session.attempt:
        session.attempt, session.resumed = attempt, True
    return session
